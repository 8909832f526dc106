//! Between the processes: frames on a Unix socket that only this user can reach.

use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use serde::{Serialize, de::DeserializeOwned};
use tokio::net::UnixStream;
use tokio_util::codec::{Framed, LengthDelimitedCodec};

use crate::io_struct::{Hello, HttpWorkerIpc, PROTOCOL_VERSION};

/// The largest frame, in bytes. A prompt that fills the longest context takes less than a megabyte.
pub const MAX_FRAME_BYTES: usize = 16 << 20;

/// A peer that does not say hello within this time is none of ours.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection: length-prefixed frames (4 bytes, big endian) of MessagePack with field names.
pub type Frames = Framed<UnixStream, LengthDelimitedCodec>;

/// What goes wrong between the processes.
#[derive(Debug, thiserror::Error)]
pub enum IpcError {
    /// The socket failed.
    #[error("socket: {0}")]
    Io(#[from] io::Error),
    /// The peer closed the connection.
    #[error("the connection ended")]
    Closed,
    /// The peer sent what cannot be read.
    #[error("unreadable frame: {0}")]
    Decode(#[from] rmp_serde::decode::Error),
    /// A message cannot be written.
    #[error("unwritable message: {0}")]
    Encode(#[from] rmp_serde::encode::Error),
    /// Two builds that do not understand each other.
    #[error(
        "peer (version {version}, pid {pid}) speaks protocol {theirs}, this process speaks {PROTOCOL_VERSION}: start frontend and engine from the same build"
    )]
    Protocol {
        /// The peer's crate version.
        version: String,
        /// The peer's process id.
        pid: u32,
        /// The peer's protocol.
        theirs: u32,
    },
    /// The engine has a model that this frontend cannot serve.
    #[error("{0}")]
    Unservable(String),
    /// The peer did not say hello.
    #[error("no hello within {HELLO_TIMEOUT:?}")]
    NoHello,
}

/// Frames on `stream`, limited to [`MAX_FRAME_BYTES`].
#[must_use]
pub fn frames(stream: UnixStream) -> Frames {
    Framed::new(stream, codec())
}

/// The framing of both directions.
#[must_use]
pub fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().max_frame_length(MAX_FRAME_BYTES).new_codec()
}

/// One message as the content of a frame.
///
/// # Errors
/// The message cannot be written.
pub fn encode<T: Serialize>(msg: &T) -> Result<Bytes, IpcError> {
    Ok(rmp_serde::to_vec_named(msg)?.into())
}

/// The message in a frame.
///
/// # Errors
/// The frame holds something else.
pub fn decode<T: DeserializeOwned>(frame: &[u8]) -> Result<T, IpcError> {
    Ok(rmp_serde::from_slice(frame)?)
}

/// This process's hello under the name of `worker`.
#[must_use]
pub fn hello(worker: HttpWorkerIpc) -> Hello {
    Hello {
        protocol: PROTOCOL_VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        http_worker_ipc: worker,
    }
}

/// A frontend introduces itself and hears who answers.
///
/// # Errors
/// No connection, no hello in time, or another protocol.
pub async fn introduce(frames: &mut Frames, worker: HttpWorkerIpc) -> Result<Hello, IpcError> {
    frames.send(encode(&hello(worker))?).await?;
    hear(frames).await
}

/// An engine hears who calls and answers. The answer goes out even to another protocol, so that both sides can say why.
///
/// # Errors
/// No connection, no hello in time, or another protocol.
pub async fn welcome(frames: &mut Frames) -> Result<Hello, IpcError> {
    let theirs = hear(frames).await;
    let worker = theirs.as_ref().map_or_else(|_| HttpWorkerIpc::new(""), |hello| hello.http_worker_ipc.clone());
    frames.send(encode(&hello(worker))?).await?;
    theirs
}

async fn hear(frames: &mut Frames) -> Result<Hello, IpcError> {
    let frame = tokio::time::timeout(HELLO_TIMEOUT, frames.next()).await.map_err(|_| IpcError::NoHello)?;
    let theirs: Hello = decode(&frame.ok_or(IpcError::Closed)??)?;
    if theirs.protocol == PROTOCOL_VERSION {
        Ok(theirs)
    } else {
        Err(IpcError::Protocol { version: theirs.version, pid: theirs.pid, theirs: theirs.protocol })
    }
}

/// Listens at `path`. Its folder is created with mode 0700 if it is missing; a socket that nobody serves any more is
/// replaced.
///
/// # Errors
/// Somebody listens there already, or the file system refuses.
pub fn listen(path: &Path) -> io::Result<StdUnixListener> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        let message = format!("{} is in use by another engine", path.display());
        return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = StdUnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// A socket in a folder of its own, both removed with this value.
#[derive(Debug)]
pub struct PrivateSocket {
    folder: tempfile::TempDir,
}

impl PrivateSocket {
    /// Makes the folder, mode 0700, and listens in it.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn listen() -> io::Result<(Self, StdUnixListener)> {
        let mode = std::fs::Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix("radiosonde-").permissions(mode).tempdir()?;
        let socket = Self { folder };
        let listener = listen(&socket.path())?;
        Ok((socket, listener))
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("engine.sock")
    }
}

/// Removes the socket of `listener` and, if nothing else is in it, its folder. For the survivor of a pair.
pub fn remove_socket(listener: &StdUnixListener) {
    let Ok(address) = listener.local_addr() else { return };
    let Some(path) = address.as_pathname() else { return };
    let removed = std::fs::remove_file(path).and_then(|()| path.parent().map_or(Ok(()), std::fs::remove_dir));
    if let Err(error) = removed {
        tracing::debug!(%error, path = %path.display(), "socket not removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn both_sides_say_hello_and_refuse_another_protocol() {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut near, mut far) = (frames(near), frames(far));
        let worker = HttpWorkerIpc::new("w1");
        let (engine, frontend) = tokio::join!(welcome(&mut far), introduce(&mut near, worker.clone()));
        assert_eq!(engine.unwrap().http_worker_ipc, worker);
        assert_eq!(frontend.unwrap().http_worker_ipc, worker);

        let stranger = Hello { protocol: 99, ..hello(worker) };
        near.send(encode(&stranger).unwrap()).await.unwrap();
        let refused = welcome(&mut far).await.unwrap_err().to_string();
        let want = format!("speaks protocol 99, this process speaks {PROTOCOL_VERSION}");
        assert!(refused.contains(&want), "{refused}");
    }

    #[tokio::test]
    async fn what_is_not_a_frame_of_ours_is_an_error() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut far = frames(far);
        near.try_write(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(matches!(welcome(&mut far).await, Err(IpcError::Io(_))), "that frame would have 1.2 GB");
    }

    #[test]
    fn a_private_socket_is_private_and_leaves_nothing() {
        let (socket, listener) = PrivateSocket::listen().unwrap();
        let folder = socket.path().parent().unwrap().to_owned();
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(listen(&socket.path()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(socket);
        assert!(!folder.exists());
        drop(listener);
    }
}
