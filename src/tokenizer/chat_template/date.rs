//! Today's date for templates that ask for it.

use crate::clock::{MonoNanos, WallAnchor};

/// A moment in UTC, in parts.
pub struct Date {
    seconds: u64,
    year: u64,
    month: usize,
    day: u64,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

impl Date {
    /// Now.
    pub fn today() -> Self {
        Self::from_unix(WallAnchor::now().unix_seconds(MonoNanos::now()) as u64)
    }

    /// `seconds` after 1970-01-01 00:00 UTC. The calendar is counted in eras of 400 years that begin on 1 March, so
    /// that a leap day is the last of its year.
    fn from_unix(seconds: u64) -> Self {
        let days = seconds / 86_400 + 719_468; // since 0000-03-01
        let (era, of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = (from_march + 2) % 12;
        let year = era * 400 + year_of_era + u64::from(month < 2);
        Self { seconds, year, month: month as usize, day }
    }

    /// `format` with the letters of `strftime` that templates use; any other is left as it stands.
    pub fn format(&self, format: &str) -> String {
        let mut text = String::new();
        let mut letters = format.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                text.push(letter);
                continue;
            }
            match letters.next() {
                Some(letter) => text.push_str(&self.part(letter).unwrap_or_else(|| format!("%{letter}"))),
                None => text.push('%'),
            }
        }
        text
    }

    fn part(&self, letter: char) -> Option<String> {
        let month = MONTHS[self.month];
        let weekday = WEEKDAYS[(self.seconds / 86_400 % 7) as usize];
        Some(match letter {
            'Y' => self.year.to_string(),
            'y' => format!("{:02}", self.year % 100),
            'm' => format!("{:02}", self.month + 1),
            'd' => format!("{:02}", self.day),
            'B' => month.to_owned(),
            'b' => month[..3].to_owned(),
            'A' => weekday.to_owned(),
            'a' => weekday[..3].to_owned(),
            'H' => format!("{:02}", self.seconds / 3600 % 24),
            'M' => format!("{:02}", self.seconds / 60 % 60),
            'S' => format!("{:02}", self.seconds % 60),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let check = |seconds, want: &str| {
            assert_eq!(Date::from_unix(seconds).format("%a %d %b %Y %H:%M:%S, %m/%y %B %A 100%% %q%"), want);
        };
        check(0, "Thu 01 Jan 1970 00:00:00, 01/70 January Thursday 100% %q%");
        check(951_782_400, "Tue 29 Feb 2000 00:00:00, 02/00 February Tuesday 100% %q%");
        check(951_868_800, "Wed 01 Mar 2000 00:00:00, 03/00 March Wednesday 100% %q%");
        check(1_798_761_599, "Thu 31 Dec 2026 23:59:59, 12/26 December Thursday 100% %q%");
        check(4_107_542_400, "Mon 01 Mar 2100 00:00:00, 03/00 March Monday 100% %q%");
    }
}
