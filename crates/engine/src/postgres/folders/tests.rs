use super::*;

/// A volume that goes away with the test.
struct Volume(Layout);

impl Volume {
    fn new(name: &str) -> Volume {
        let volume = std::env::temp_dir().join(format!("keelson-folders-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&volume);
        let layout = Layout { volume, ..Layout::default() };
        fs::create_dir_all(layout.config()).unwrap();
        Volume(layout)
    }

    /// A folder with a word in it.
    fn put(&self, folder: &Path, word: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("PG_VERSION"), "17\n").unwrap();
        fs::write(folder.join("word"), word).unwrap();
    }

    fn made(&self, word: &str) {
        let new = begin(&self.0).unwrap();
        self.put(&new, word);
    }

    fn word(&self, folder: &Path) -> Option<String> {
        fs::read_to_string(folder.join("word")).ok()
    }

    fn data(&self) -> Option<String> {
        self.word(&self.0.data())
    }

    fn old(&self) -> Option<String> {
        self.word(&self.0.beside("old"))
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0.volume);
    }
}

#[test]
fn what_is_half_made_is_no_database() {
    let volume = Volume::new("half");
    volume.made("half");
    assert_eq!(look(&volume.0, 17).unwrap(), Found::Nothing);
    settle(&volume.0).unwrap();
    assert!(!volume.0.beside("new").exists());
}

#[test]
fn the_old_one_is_kept_until_it_is_discarded() {
    let volume = Volume::new("kept");
    for word in ["first", "second"] {
        volume.made(word);
        finish(&volume.0).unwrap();
    }
    assert_eq!((volume.data().as_deref(), volume.old().as_deref()), (Some("second"), Some("first")));
    discard_old(&volume.0).unwrap();
    assert_eq!((volume.data().as_deref(), volume.old()), (Some("second"), None));
}

#[test]
fn a_clone_that_never_proved_itself_goes_before_what_it_replaced() {
    let volume = Volume::new("unproven");
    for word in ["first", "second", "third"] {
        volume.made(word);
        finish(&volume.0).unwrap();
    }
    assert_eq!((volume.data().as_deref(), volume.old().as_deref()), (Some("third"), Some("first")));
    assert!(!volume.0.beside("gone").exists());
}

#[test]
fn after_a_crash_at_any_step_there_is_a_whole_database() {
    for (there, expected) in [
        (&["data", "new"][..], "data"),
        (&["data", "ready"], "data"),
        (&["ready", "old"], "ready"),
        (&["ready", "gone", "old"], "ready"),
        (&["data", "gone", "old"], "data"),
        (&["old"], "old"),
    ] {
        let volume = Volume::new(&there.join("-"));
        for name in there {
            let folder = if *name == "data" { volume.0.data() } else { volume.0.beside(name) };
            volume.put(&folder, name);
        }
        settle(&volume.0).unwrap();
        assert_eq!(volume.data().as_deref(), Some(expected), "{there:?}");
        for name in ["new", "ready", "gone"] {
            assert!(!volume.0.beside(name).exists(), "{there:?} left {name}");
        }
    }
}

#[test]
fn a_rewind_that_broke_off_is_known_until_the_folder_is_replaced() {
    let volume = Volume::new("rewound");
    volume.made("first");
    finish(&volume.0).unwrap();
    set_mark(&volume.0).unwrap();
    assert!(matches!(look(&volume.0, 17).unwrap(), Found::Unusable(_)));
    volume.made("second");
    finish(&volume.0).unwrap();
    assert_eq!(look(&volume.0, 17).unwrap(), Found::Database);
}

#[test]
fn data_of_another_version_is_not_taken_for_lost() {
    let volume = Volume::new("version");
    volume.made("first");
    finish(&volume.0).unwrap();
    let error = look(&volume.0, 18).unwrap_err();
    assert_eq!(error.to_string(), "looking at the data: the data is of PostgreSQL 17, the image has 18");
}

#[test]
fn a_start_clears_away_what_the_last_run_left() {
    let volume = Volume::new("prepare");
    volume.made("first");
    finish(&volume.0).unwrap();
    let data = volume.0.data();
    for name in ["postmaster.pid", "recovery.signal", "postgresql.auto.conf.tmp"] {
        fs::write(data.join(name), "1").unwrap();
    }
    fs::set_permissions(&data, fs::Permissions::from_mode(0o770)).unwrap();
    prepare(&volume.0, 15, true).unwrap();
    prepare(&volume.0, 15, true).unwrap();
    assert!(!data.join("postmaster.pid").exists() && !data.join("recovery.signal").exists());
    assert!(data.join("standby.signal").exists() && data.join("postgresql.auto.conf.tmp").is_dir());
    assert_eq!(fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
    prepare(&volume.0, 15, false).unwrap();
    assert!(!data.join("standby.signal").exists());
}

#[test]
fn the_newest_timeline_is_the_one_that_there_is_log_of() {
    let volume = Volume::new("timeline");
    assert_eq!(newest_timeline(&volume.0), None);
    let log = volume.0.data().join("pg_wal");
    fs::create_dir_all(log.join("archive_status")).unwrap();
    let names = [
        "000000020000000000000003",
        "00000003000000000000000A",
        "00000009.history",
        "xlogtemp.77",
        "0000000B",
    ];
    names.iter().for_each(|name| fs::write(log.join(name), "").unwrap());
    assert_eq!(newest_timeline(&volume.0), Some(3), "that another has begun one is only hearsay");
}
