#!/bin/sh
# Answers one HTTP request and prints its body: the webhook of a demonstration. Started by nc for each connection.
length=0
read -r request
while read -r header && [ "$header" != "$(printf '\r')" ]; do
    case $header in
        [Cc]ontent-[Ll]ength:*) length=$(printf '%s' "${header#*:}" | tr -d ' \r') ;;
    esac
done
body=$(head -c "$length")
printf '%s %s\n%s\n' "$(date -u +%H:%M:%S)" "$request" "$body" >&2
printf 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n'
