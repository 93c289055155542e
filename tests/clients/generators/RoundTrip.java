import java.net.URI;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.List;
import java.util.Map;
import org.openapitools.client.ApiClient;
import org.openapitools.client.api.ConsumingApi;
import org.openapitools.client.api.EventTypesApi;
import org.openapitools.client.api.LowLevelStreamsApi;
import org.openapitools.client.api.PublishingApi;
import org.openapitools.client.api.SubscriptionsApi;
import org.openapitools.client.model.Batch;
import org.openapitools.client.model.Category;
import org.openapitools.client.model.Event;
import org.openapitools.client.model.EventType;
import org.openapitools.client.model.ReadFrom;
import org.openapitools.client.model.SchemaType;
import org.openapitools.client.model.SubmittedCursor;
import org.openapitools.client.model.SubmittedCursors;
import org.openapitools.client.model.SubmittedEventType;
import org.openapitools.client.model.SubmittedEventTypeSchema;
import org.openapitools.client.model.SubmittedOptions;
import org.openapitools.client.model.SubmittedSubscription;
import org.openapitools.client.model.Subscription;

/** What the client that openapi-generator makes for Java does with a broker, whose address is the argument. */
public class RoundTrip {
  private static final String NAME = "generated.java";

  public static void main(String[] arguments) throws Exception {
    ApiClient api = new ApiClient();
    api.updateBaseUri(arguments[0]);

    EventTypesApi eventTypes = new EventTypesApi(api);
    SubmittedEventType submitted = new SubmittedEventType()
        .name(NAME)
        .owningApplication("shop")
        .category(Category.BUSINESS)
        .enrichmentStrategies(List.of("metadata_enrichment"))
        .schema(new SubmittedEventTypeSchema().type(SchemaType.JSON_SCHEMA).schema("{\"required\": [\"order\"]}"))
        .options(new SubmittedOptions().retentionTime(300_000_000L));
    EventType eventType = eventTypes.createAnEventType(submitted, null, null, null);
    System.out.println(eventType.getName() + " " + eventType.getSchema().getVersion() + " "
        + eventType.getAuthorization() + " " + eventType.getOptions().getRetentionTime());

    Event event = new Event()
        .metadata(Map.of("eid", "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a12", "occurred_at", "2026-11-20T10:00:00Z"))
        .putAdditionalProperty("order", "1");
    new PublishingApi(api).publishEvents(NAME, List.of(event), null, null, null, null, null, null, null);

    String begin = "[{\"partition\": \"0\", \"offset\": \"BEGIN\"}]";
    Batch read = new LowLevelStreamsApi(api)
        .streamTheEventsOfAnEventType(NAME, begin, null, null, null, null, 1L, 1L, null, null, null, null, null);
    System.out.println(read.getEvents().get(0).getAdditionalProperty("order"));

    SubscriptionsApi subscriptions = new SubscriptionsApi(api);
    Subscription subscription = subscriptions.createASubscription(
        new SubmittedSubscription().owningApplication("shop").eventTypes(List.of(NAME)).readFrom(ReadFrom.BEGIN),
        null, null, null);
    String id = subscription.getId().toString();
    ConsumingApi consuming = new ConsumingApi(api);
    // The functions for streams read to the end of the answer; one that goes on is read with the client's parts.
    URI stream = URI.create(api.getBaseUri() + "/subscriptions/" + id + "/events?batch_limit=1&stream_timeout=60");
    var answer = api.getHttpClient().send(HttpRequest.newBuilder(stream).build(), BodyHandlers.ofLines());
    String streamId = answer.headers().firstValue("X-Nakadi-StreamId").orElseThrow();
    var lines = answer.body().iterator();
    Batch batch = api.getObjectMapper().readValue(lines.next(), Batch.class);
    System.out.println(batch.getEvents().get(0).getAdditionalProperty("order") + " " + batch.getCursor().getPartition());
    SubmittedCursor cursor = api.getObjectMapper().convertValue(batch.getCursor(), SubmittedCursor.class);
    consuming.commitCursors(id, streamId, new SubmittedCursors().addItemsItem(cursor), null, null, null);
    consuming.closeAStream(id, streamId, null, null);

    String committed = consuming.listCommittedCursors(id, null, null).getItems().get(0).getOffset();
    System.out.println(committed.equals(batch.getCursor().getOffset()));
    System.out.println(subscriptions.showTheStatisticsOfASubscription(id, true, null, null, null)
        .getItems().get(0).getPartitions().get(0).getUnconsumedEvents());
    System.out.println(subscriptions.listSubscriptions(null, List.of(NAME), null, null, null, null, true, null, null, null)
        .getItems().get(0).getId().equals(subscription.getId()));
    System.out.println(eventTypes.listEventTypes(NAME, null, null, null, null, null, null, null, null, null, null, null,
        null, null, null, null).size());
  }
}
