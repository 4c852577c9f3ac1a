//! The engine on real PostgreSQL 15, 17 and 18, in the file systems of their images.

mod damage;
mod data;
mod inspect;
mod instance;
mod life;
mod replication;
mod restore;
mod roles;
mod settings;

macro_rules! scenarios {
    ($($file:ident: $($name:ident)+;)+) => {
        $($(
            #[test]
            fn $name() {
                testbed::inside::each_version(stringify!($name), &[], $file::$name);
            }
        )+)+
    };
}

scenarios! {
    life:
        a_database_is_made_started_and_stopped
        a_crash_is_seen_at_once_and_leaves_nobody_behind
        a_stale_pid_file_does_not_keep_it_from_starting
        a_postmaster_that_hangs_is_noticed_and_can_be_ended
        a_heartbeat_waits_for_no_replica
        a_child_that_is_waited_for_is_not_taken_for_an_orphan
        a_volume_has_one_master;
    roles:
        who_knows_the_password_comes_in_over_tls
        a_replica_that_turns_clients_away_follows_and_lets_them_in_when_told_or_promoted
        the_application_owns_its_database
        passwords_are_told_to_nobody;
    settings:
        what_can_be_reloaded_is_in_force_at_once
        what_needs_a_restart_is_named_and_waits_for_it
        what_postgresql_refuses_changes_nothing
        alter_system_is_refused;
    replication:
        a_clone_streams_and_is_counted
        a_replica_follows_another_primary_without_a_restart
        a_primary_is_found_by_its_address_or_by_its_name
        a_diverged_primary_is_rewound
        two_that_never_heard_of_each_other_begin_timelines_of_different_numbers
        slots_are_kept_for_those_who_are_wanted
        a_replica_that_is_away_for_too_long_is_copied_anew
        a_replicas_data_is_not_started_as_a_primary
        what_is_lowered_goes_down_on_the_primary_first
        commits_wait_for_the_fence_and_for_nothing_else;
    restore:
        archiving_is_switched_on_with_a_restart_and_off_at_once
        what_was_brought_back_is_replayed_to_where_it_is_wanted
        a_restore_that_does_not_get_there_leaves_no_database
        data_that_is_restored_in_place_begins_the_timeline_that_is_wanted_and_the_old_data_is_kept;
    inspect:
        a_page_that_the_disk_has_changed_is_found
        marks_are_numbered_and_the_last_of_them_kept_and_are_nobody_elses_writes;
    damage:
        what_its_disk_has_failed_is_not_made_primary_again;
    data:
        an_initialisation_that_breaks_off_leaves_no_database
        a_clone_that_breaks_off_leaves_the_old_data
        a_clone_keeps_the_old_data_until_it_is_discarded
        a_rewind_that_breaks_off_leaves_data_that_nobody_starts;
}
