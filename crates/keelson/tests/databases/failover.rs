//! Whatever happens to one instance, node or link: another leads, nothing that was acknowledged is lost,
//! and nobody is needed for it. The operator is away all the time.

use crate::bed::Bed;
use crate::misfortunes::Misfortune;

/// One after the other, to one database.
async fn survives_all(bed: &Bed, misfortunes: &[Misfortune]) {
    for misfortune in misfortunes {
        bed.survives(*misfortune).await;
    }
}

#[tokio::test]
async fn whatever_happens_to_the_leader_of_postgresql_17() {
    let bed = Bed::left_to_itself("17").await;
    let misfortunes = [
        Misfortune::PostgresKilled,
        Misfortune::PostgresPaused,
        Misfortune::ContainerKilled,
        Misfortune::PodDeleted,
        Misfortune::PodDeletedByForce,
        Misfortune::NodeCrashed,
        Misfortune::NodeCutOff,
        Misfortune::NodeFrozen,
        Misfortune::VolumeFrozen,
        Misfortune::VolumeFails,
    ];
    survives_all(&bed, &misfortunes).await;
    bed.looked_after_again().await;
}

#[tokio::test]
async fn what_people_ask_for_is_a_matter_of_a_moment() {
    let bed = Bed::left_to_itself("17").await;
    let misfortunes = [
        Misfortune::HandedOver,
        Misfortune::SwitchedOver,
        Misfortune::SwitchedOverTo,
        Misfortune::NodeDrained,
        Misfortune::NodeShutDown,
        Misfortune::DeletedWithoutControllers,
    ];
    survives_all(&bed, &misfortunes).await;
    bed.looked_after_again().await;
}

#[tokio::test]
async fn volumes_that_are_lost_all_instances_at_once_and_things_that_are_no_reason_to_change() {
    let bed = Bed::left_to_itself("17").await;
    let misfortunes =
        [Misfortune::VolumeLost, Misfortune::VolumeReadOnly, Misfortune::VolumeFull, Misfortune::AllKilled];
    survives_all(&bed, &misfortunes).await;
    let nuisances = [
        Misfortune::ApiCut,
        Misfortune::LinkCut,
        Misfortune::LinkCutOneWay,
        Misfortune::PacketsLost,
        Misfortune::ApiSlow,
        Misfortune::EtcdStopped,
        Misfortune::EtcdPaused,
        Misfortune::ReplicaKilled,
        Misfortune::ReplicaPaused,
        Misfortune::ReplicaCrashed,
        Misfortune::ReplicaVolumeFails,
    ];
    bed.is_not_moved_by(&nuisances).await;
    bed.looked_after_again().await;
}

#[tokio::test]
async fn a_replica_that_lost_its_leader_for_a_while_is_left_alone_and_names_are_not_needed() {
    let bed = Bed::left_to_itself("17").await;
    bed.is_not_moved_by(&[Misfortune::LinkCutForLong]).await;
    bed.survives(Misfortune::CrashedWithoutNames).await;
    bed.looked_after_again().await;
}

#[tokio::test]
async fn the_main_things_that_happen_to_the_leader_of_postgresql_15() {
    main_things("15").await;
}

#[tokio::test]
async fn the_main_things_that_happen_to_the_leader_of_postgresql_18() {
    main_things("18").await;
}

async fn main_things(version: &str) {
    let bed = Bed::left_to_itself(version).await;
    let misfortunes = [
        Misfortune::PostgresKilled,
        Misfortune::ContainerKilled,
        Misfortune::NodeCrashed,
        Misfortune::ProcessesPaused,
        Misfortune::HandedOver,
    ];
    survives_all(&bed, &misfortunes).await;
    bed.looked_after_again().await;
}
