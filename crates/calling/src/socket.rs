//! The unix socket between the bridges and the gateway.
//!
//! The path of a socket may have at most 107 bytes, but the path of a data directory may be longer. So both sides open the
//! directory of the socket first, and then use a short path to the socket through `/proc`.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// The name of the socket in the data directory.
pub const SOCKET: &str = "mcp.sock";

/// Binds the socket, and replaces that of an earlier gateway. Only the gateway that has locked the data directory may call this.
pub(crate) fn bind(data_dir: &Path) -> io::Result<UnixListener> {
    let path = data_dir.join(SOCKET);
    match std::fs::symlink_metadata(&path) {
        Ok(old) if old.file_type().is_socket() => std::fs::remove_file(&path)?,
        Ok(_) => {
            return Err(io::Error::other(format!("there is another file at {}; remove it", path.display())));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let (_directory, short) = short(&path)?;
    let listener = UnixListener::bind(short)?;
    // A process that connects before this line still needs a token.
    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

pub(crate) async fn connect(path: &Path) -> io::Result<UnixStream> {
    let (_directory, short) = short(path)?;
    UnixStream::connect(short).await
}

/// A short path to the same file. It is valid while the returned directory is open.
fn short(path: &Path) -> io::Result<(File, PathBuf)> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let directory = File::open(parent)?;
    let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    Ok((directory, short))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_data_directory_may_have_a_long_path_and_an_old_socket() {
        let root = tempfile::tempdir().unwrap();
        let data_dir = root.path().join("d".repeat(120));
        std::fs::create_dir(&data_dir).unwrap();
        drop(bind(&data_dir).unwrap());
        let listener = bind(&data_dir).unwrap();
        let path = data_dir.join(SOCKET);
        let (connected, accepted) = tokio::join!(connect(&path), listener.accept());
        assert!(connected.is_ok() && accepted.is_ok());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn another_file_is_not_replaced() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join(SOCKET), "mine").unwrap();
        assert!(bind(root.path()).is_err());
        assert_eq!(std::fs::read(root.path().join(SOCKET)).unwrap(), b"mine");
    }
}
