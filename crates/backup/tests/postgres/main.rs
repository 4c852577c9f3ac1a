//! Backups of real PostgreSQL 15, 17 and 18, in the file systems of their images, into a folder and into a real S3
//! server.

mod damage;
mod life;
mod replica;
mod server;
mod store;

use std::path::PathBuf;
use std::sync::LazyLock;

static S3_SERVER: LazyLock<PathBuf> = LazyLock::new(|| testbed::s3_server().unwrap());

macro_rules! scenarios {
    ($($file:ident: $($name:ident)+;)+) => {
        $($(
            #[test]
            fn $name() {
                // Inside, nothing is built.
                let outside = std::env::var_os("KEELSON_TEST_INSIDE").is_none();
                let programs: Vec<&std::path::Path> = outside.then(|| S3_SERVER.as_path()).into_iter().collect();
                testbed::inside::each_version(stringify!($name), &programs, $file::$name);
            }
        )+)+
    };
}

scenarios! {
    life:
        a_database_comes_back_from_a_folder_exactly_as_it_was_at_each_target
        a_database_comes_back_from_s3_sealed_and_incremental
        a_store_that_is_away_stops_nothing_and_catches_up
        tablespaces_go_where_they_are_told_to;
    replica:
        a_replica_is_backed_up_and_the_log_of_two_timelines_leads_on;
    damage:
        a_flipped_byte_in_a_part_or_in_the_log_is_loud
        two_databases_on_one_path_are_refused;
}
