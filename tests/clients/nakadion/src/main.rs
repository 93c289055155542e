//! Creates an event type, publishes, and consumes by a subscription, whose batches are committed once a second.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use nakadi_types::event::publishable::{BusinessEventPub, EventMetaDataPub};
use nakadi_types::event::{BusinessEvent, Eid};
use nakadi_types::event_type::*;
use nakadi_types::subscription::*;
use nakadi_types::{Error, NakadiBaseUrl, RandomFlowId};
use nakadion::api::*;
use nakadion::auth::NoAuthAccessTokenProvider;
use nakadion::consumer::*;
use nakadion::handler::*;
use nakadion::publisher::{Publisher, PublishesEvents};
use serde::{Deserialize, Serialize};

const NAME: &str = "order.returned";
const SCHEMA: &str = r#"{"properties": {"order": {"type": "string"}}, "required": ["order"]}"#;

#[derive(Serialize, Deserialize)]
struct OrderReturned {
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<String>,
}

fn returned(order: Option<&str>) -> BusinessEventPub<OrderReturned> {
    let data = OrderReturned { order: order.map(str::to_owned) };
    BusinessEventPub { data, metadata: EventMetaDataPub::new(Eid) }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url: NakadiBaseUrl = std::env::args().nth(1).ok_or("usage: nakadion-example URL")?.parse()?;
    let client = ApiClient::default_builder().nakadi_base_url(url).finish(NoAuthAccessTokenProvider)?;
    let name = EventTypeName::new(NAME);

    let event_type = EventTypeInput::builder()
        .name(NAME)
        .owning_application("shop")
        .category(Category::Business)
        .enrichment_strategy(EnrichmentStrategy::MetadataEnrichment)
        .compatibility_mode(CompatibilityMode::Forward)
        .schema(EventTypeSchemaInput::json_schema_parsed(SCHEMA)?)
        .partition_strategy(PartitionStrategy::Hash)
        .partition_key_fields("order")
        .cleanup_policy(CleanupPolicy::Delete)
        .default_statistic(EventTypeStatistics::new(100, 1_000, 2, 2))
        .options(EventTypeOptions::default())
        .audience(EventTypeAudience::CompanyInternal)
        .build()?;
    client.create_event_type(&event_type, RandomFlowId).await?;
    if let Err(error) = client.create_event_type(&event_type, RandomFlowId).await {
        println!("again: {:?}", error.status());
    }
    let listed = client.list_event_types(()).await?.iter().any(|each| each.name == name);
    println!("listed: {}, schema: {}", listed, client.get_event_type(&name, ()).await?.schema.schema);

    let publisher = Publisher::new(client.clone());
    let orders: Vec<_> = ["1", "2", "3", "4"].iter().map(|order| returned(Some(order))).collect();
    publisher.publish_events(&name, &orders, ()).await?;
    if let Err(PublishError::SubmissionFailed(failed)) =
        publisher.publish_events(&name, &[returned(Some("5")), returned(None)], ()).await
    {
        for item in failed.failure.iter() {
            println!("{:?}: {}", item.publishing_status, item.detail.as_deref().unwrap_or(""));
        }
    }
    println!("partitions: {}", client.get_event_type_partitions(&name, ()).await?.len());

    let input = SubscriptionInput::builder()
        .owning_application("warehouse")
        .consumer_group("stock")
        .event_types(EventTypeNames::default().event_type_name(NAME))
        .read_from(ReadFrom::Begin)
        .authorization(SubscriptionAuthorization::default().admin(("user", "anna")).reader(("service", "warehouse")))
        .finish_for_create()?;
    let subscription = client.create_subscription(&input, ()).await?.id;

    let consumer = Consumer::builder()
        .subscription_id(subscription)
        .dispatch_mode(DispatchMode::EventTypePartitionPar)
        .stream_parameters(StreamParameters::default().batch_limit(2).batch_flush_timeout_secs(1))
        .configure_committer(|committer| committer.commit_strategy(CommitStrategy::after_seconds(1)))
        .build_with(client.clone(), Handlers::default(), StdOutLoggingAdapter::default())?;
    let (handle, consuming) = consumer.start();
    let stopping = async {
        let done = tokio::time::timeout(Duration::from_secs(60), until_all_is_committed(&client, subscription)).await;
        handle.stop();
        done
    };
    let (consumed, done) = futures::join!(consuming, stopping);
    consumed.into_result()?;
    done??;
    println!("all events are committed");
    Ok(())
}

async fn until_all_is_committed(client: &ApiClient, subscription: SubscriptionId) -> Result<(), NakadiApiError> {
    while !client.get_subscription_stats(subscription, false, ()).await?.all_events_consumed() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Makes a handler for each partition.
#[derive(Default)]
struct Handlers {
    received: Arc<AtomicUsize>,
}

impl BatchHandlerFactory for Handlers {
    fn handler<'a>(&'a self, _: &'a HandlerAssignment) -> BoxFuture<'a, Result<Box<dyn BatchHandler>, Error>> {
        async move { Ok(Box::new(Handler { received: self.received.clone() }) as Box<_>) }.boxed()
    }
}

struct Handler {
    received: Arc<AtomicUsize>,
}

impl EventsHandler for Handler {
    type Event = BusinessEvent<OrderReturned>;

    fn handle<'a>(&'a mut self, events: Vec<Self::Event>, batch: BatchMeta<'a>) -> EventsHandlerFuture<'a> {
        async move {
            for event in events {
                let count = self.received.fetch_add(1, Ordering::SeqCst) + 1;
                let order = event.data.order.unwrap_or_default();
                println!("event {}: order {} from partition {}", count, order, batch.cursor.cursor.partition);
            }
            EventsPostAction::Commit
        }
        .boxed()
    }
}
