//! Copying this program to where a container that lacks it finds it.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Copies this program into the folder, as `keelson`, whole or not at all: a start that broke off leaves
/// nothing that could be run.
pub fn copy_to(folder: &Path) -> io::Result<()> {
    copy(&std::env::current_exe()?, folder)
}

fn copy(program: &Path, folder: &Path) -> io::Result<()> {
    let (partial, whole) = (folder.join(".keelson.partial"), folder.join("keelson"));
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("copying to {}: {error}", whole.display()));
    fs::copy(program, &partial).map_err(named)?;
    fs::set_permissions(&partial, Permissions::from_mode(0o755)).map_err(named)?;
    File::open(&partial).and_then(|file| file.sync_all()).map_err(named)?;
    fs::rename(&partial, &whole).map_err(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_copied_whole_and_can_be_run_and_copied_again() {
        let folder = std::env::temp_dir().join(format!("keelson-copy-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join("program");
        for content in ["first", "second"] {
            fs::write(&program, content).unwrap();
            copy(&program, &folder).unwrap();
            assert_eq!(fs::read_to_string(folder.join("keelson")).unwrap(), content);
        }
        let mode = fs::metadata(folder.join("keelson")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        assert!(!folder.join(".keelson.partial").exists());
        fs::remove_dir_all(&folder).unwrap();
        let said = copy(&program, &folder).unwrap_err().to_string();
        assert!(said.contains("copying to"), "{said}");
    }
}
