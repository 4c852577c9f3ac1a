//! An API server that is silent, slow, full, failing or gone, and watches that are cut: the operator
//! says so, waits, and goes on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use k8s_openapi::api::core::v1::ConfigMap;
use keelson_kit::Kind;
use keelson_kit::client::{Deadlines, with_config};
use keelson_kit::queue::Limits;
use keelson_kit::retry::Backoff;
use keelson_kit::telemetry::Metrics;
use kube::Client;
use kube::client::Body;
use testbed::{ControlPlane, Look, until};
use tower::BoxError;

use crate::greeting::Greeter;
use crate::world::{DEADLINE, DEADLINES, Operator, SECOND, World, config, install};

/// Waits between tries are short, so that a test does not wait for the sake of waiting.
fn kind() -> Kind<Greeter> {
    let backoff = Backoff { first: Duration::from_millis(200), longest: SECOND };
    Kind::new(Greeter).owns::<ConfigMap>().limits(Limits { backoff, ..Limits::default() })
}

async fn ready(operator: &Operator, expected: bool) -> String {
    until(&format!("readiness to be {expected}"), DEADLINE, || async {
        match operator.health.readiness() {
            (ready, lines) if ready == expected => Look::There(lines),
            (_, lines) => Look::NotYet(lines),
        }
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_silent_or_gone_is_said_and_waited_for() {
    let mut plane = ControlPlane::start().await.unwrap();
    install(&plane.client()).await;
    let world = World::on(plane.kubeconfig(), "outage").await;
    let operator = world.operator(kind()).await;
    world.greet("before", "world").await;
    world.says("before", "Hello, world!").await;
    ready(&operator, true).await;
    for outage in ["silent", "gone"] {
        match outage {
            "silent" => plane.pause(),
            _ => plane.stop().unwrap(),
        }
        let lines = ready(&operator, false).await;
        assert!(lines.contains("the API server has not answered"), "{lines}");
        assert!(operator.health.liveness().0, "a restart would not help");
        match outage {
            "silent" => plane.resume(),
            _ => plane.start_again().await.unwrap(),
        }
        world.greet(outage, "again").await;
        world.says(outage, "Hello, again!").await;
        ready(&operator, true).await;
    }
    operator.stop().await;
}

/// What the API server does instead of answering.
#[derive(Clone, Copy)]
enum Weather {
    Fine,
    Refuses(u16),
    Slow(Duration),
}

/// A client in all weathers. Leases are always fine: without them nobody works at all.
fn under(weather: &Arc<Mutex<Weather>>, client: Client, refused: &Arc<Mutex<u32>>) -> Client {
    let (weather, refused) = (weather.clone(), refused.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, weather, refused) = (client.clone(), *weather.lock().unwrap(), refused.clone());
        async move {
            match weather {
                Weather::Refuses(code) if !request.uri().path().contains("leases") => {
                    *refused.lock().unwrap() += 1;
                    let mut response = Response::new(Body::empty());
                    *response.status_mut() = StatusCode::from_u16(code).unwrap();
                    Ok::<_, BoxError>(response)
                }
                Weather::Slow(delay) if !request.uri().path().contains("leases") => {
                    tokio::time::sleep(delay).await;
                    Ok(client.send(request).await?)
                }
                _ => Ok(client.send(request).await?),
            }
        }
    });
    Client::new(service, "default")
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_and_slowness_are_waited_out_without_a_storm() {
    let world = World::new("weather").await;
    let (weather, refused) = (Arc::new(Mutex::new(Weather::Fine)), Arc::new(Mutex::new(0)));
    let metrics = Metrics::new("test");
    let client = with_config(config(&world.kubeconfig).await, DEADLINES, &metrics).unwrap();
    let operator = world.operator_with(under(&weather, client, &refused), metrics, kind());
    world.greet("first", "world").await;
    world.says("first", "Hello, world!").await;
    for code in [429, 500, 503] {
        let name = format!("refused-{code}");
        *refused.lock().unwrap() = 0;
        *weather.lock().unwrap() = Weather::Refuses(code);
        let start = std::time::Instant::now();
        world.greet(&name, "world").await;
        until("some requests to be refused", DEADLINE, || async {
            match *refused.lock().unwrap() {
                few if few < 3 => Look::NotYet(format!("{few}")),
                _ => Look::There(()),
            }
        })
        .await
        .unwrap();
        let (count, took) = (*refused.lock().unwrap(), start.elapsed().as_secs_f64());
        *weather.lock().unwrap() = Weather::Fine;
        assert!(f64::from(count) <= 4.0 + 12.0 * took, "{count} requests into {code} in {took} s");
        world.says(&name, "Hello, world!").await;
    }
    *weather.lock().unwrap() = Weather::Slow(Duration::from_millis(700));
    world.greet("slow", "world").await;
    world.says("slow", "Hello, world!").await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_that_are_cut_again_and_again_miss_nothing_and_cost_no_write() {
    let world = World::new("cut").await;
    let metrics = Metrics::new("test");
    let deadlines = Deadlines { silence: SECOND, ..DEADLINES };
    let client = with_config(config(&world.kubeconfig).await, deadlines, &metrics).unwrap();
    let operator = world.operator_with(client, metrics, kind());
    for number in 0..8 {
        let name = format!("hello-{number}");
        world.greet(&name, "world").await;
        world.says(&name, "Hello, world!").await;
        let watched = operator.requests(&["watch"]);
        until("watches to begin anew", DEADLINE, || async {
            match operator.requests(&["watch"]) - watched {
                more if more >= 2.0 => Look::There(()),
                more => Look::NotYet(format!("{more}")),
            }
        })
        .await
        .unwrap();
    }
    assert_eq!(operator.writes(), 16.0, "a ConfigMap and a status each");
    operator.stop().await;
}
