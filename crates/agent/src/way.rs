//! When writers are to be led here: the decision, without the writing.

use std::time::Instant;

use keelson_ha::Machine;

/// Where writers are led, as far as this instance has to do with it.
#[derive(Clone, Debug, Default)]
pub struct Way {
    /// The epoch for which they were last led here.
    led: Option<u64>,
    /// When they were last seen to be led elsewhere, or nowhere.
    strayed: Option<Instant>,
}

impl Way {
    /// They are seen not to be led here.
    pub fn strayed(&mut self, now: Instant) {
        self.strayed = Some(now);
    }

    /// Whether to lead them here now; it is then taken for done. A leader does so once an epoch, and again when
    /// somebody has changed it. But that may have been another leader: so it is done again only once the Lease has
    /// been renewed since. A virtual machine whose clock stood still does not know otherwise that it leads no more.
    pub fn is_to_be_led(&mut self, machine: &Machine, now: Instant) -> bool {
        let epoch = machine.leader().map(|(_, epoch)| epoch).filter(|_| machine.leads(now));
        let renewed = machine.led_at();
        let undone = self.strayed.is_some_and(|strayed| renewed > Some(strayed));
        let lead = epoch.is_some() && (self.led != epoch || undone);
        if lead {
            (self.led, self.strayed) = (epoch, None);
        }
        lead
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use keelson_ha::{
        Data, Holder, Identity, Input, Instance, Quorum, Receiving, Request, Running, Settings,
    };

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn writers_are_led_here_once_an_epoch_and_again_only_by_one_that_knows_that_it_still_leads() {
        let start = Instant::now();
        let holder = Holder { name: "orders-0".into(), incarnation: "a".into() };
        let settings = Settings {
            ttl: 5 * SECOND,
            look: SECOND,
            margin: SECOND,
            instances: 1,
            system: None,
            existing: false,
            synchronous: true,
            required: false,
            max_lag: 0,
            restore: None,
        };
        let mut machine = Machine::new(Identity { holder, ordinal: 0 }, settings);
        let mut way = Way::default();
        way.strayed(start);
        assert!(!way.is_to_be_led(&machine, start), "it does not lead");
        machine.step(Input::Instance(instance()), start);
        assert!(matches!(machine.step(Input::Read(None), start), Some(Request::Write { .. })));
        machine.step(Input::Written { version: "1".into(), sent: start }, start);
        assert!(way.is_to_be_led(&machine, start));
        assert!(!way.is_to_be_led(&machine, start), "it is done");
        let later = start + SECOND;
        way.strayed(later);
        assert!(!way.is_to_be_led(&machine, later), "perhaps another leads");
        assert!(matches!(machine.step(Input::Tick, later + SECOND), Some(Request::Write { .. })));
        machine.step(Input::Written { version: "2".into(), sent: later + SECOND }, later + SECOND);
        assert!(way.is_to_be_led(&machine, later + SECOND), "no: somebody meddled");
        assert!(!way.is_to_be_led(&machine, later + SECOND));
    }

    fn instance() -> Instance {
        Instance {
            data: Data::Present { system: "7".into(), led: None },
            running: Running::Stopped,
            position: None,
            receiving: Receiving::Cut,
            standbys: Vec::new(),
            commits: Quorum::default(),
            written: None,
            damaged: false,
            full: false,
            history: 1,
            restore: keelson_ha::Restore::None,
        }
    }
}
