import java.io.EOFException;
import java.io.IOException;
import java.net.URI;
import java.time.OffsetDateTime;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;

import org.zalando.fahrschein.CursorManager;
import org.zalando.fahrschein.EventPublishingException;
import org.zalando.fahrschein.IOProblem;
import org.zalando.fahrschein.Listener;
import org.zalando.fahrschein.NakadiClient;
import org.zalando.fahrschein.NakadiClientBuilder;
import org.zalando.fahrschein.NoBackoffStrategy;
import org.zalando.fahrschein.StreamBuilder;
import org.zalando.fahrschein.StreamParameters;
import org.zalando.fahrschein.domain.BatchItemResponse;
import org.zalando.fahrschein.domain.Cursor;
import org.zalando.fahrschein.domain.Metadata;
import org.zalando.fahrschein.domain.Subscription;
import org.zalando.fahrschein.http.api.ContentEncoding;
import org.zalando.fahrschein.http.simple.SimpleRequestFactory;

/** Publishes to an event type that exists, and consumes its events with and without a subscription. */
public class Example {
    static final String NAME = "order.shipped";

    public record OrderShipped(Metadata metadata, String order) {}

    public static void main(String[] arguments) throws IOException {
        // Published events are compressed, as are streams.
        NakadiClientBuilder builder = NakadiClient
            .builder(URI.create(arguments[0]), new SimpleRequestFactory(ContentEncoding.GZIP))
            .withAccessTokenProvider(() -> System.getenv().getOrDefault("NAKADI_TOKEN", "none"));
        NakadiClient client = builder.build();

        client.publish(NAME, List.of(shipped("1"), shipped("2"), shipped("3")));
        System.out.println("published 3 events, partitions: " + client.getPartitions(NAME).size());
        try {
            client.publish(NAME, List.of(shipped("4"), shipped(null)));
        } catch (EventPublishingException ex) {
            for (BatchItemResponse item : ex.getResponses()) {
                System.out.println(item.getPublishingStatus() + " " + item.getStep() + ": " + item.getDetail());
            }
        }
        try {
            client.publish("no.such-type", List.of(shipped("5")));
        } catch (IOProblem ex) {
            System.out.println(ex.getStatusCode() + ": " + ex.getDetail().orElse(""));
        }

        // Each batch is committed when the listener returns.
        Subscription subscription = client.subscription("warehouse", NAME).readFromBegin().subscribe();
        consume(client.stream(subscription), "subscription");

        // Without a subscription the application keeps the cursors.
        NakadiClient lowLevel = builder.withCursorManager(new CursorsInMemory()).build();
        consume(lowLevel.stream(NAME).readFromBegin(lowLevel.getPartitions(NAME)), "low-level stream");
    }

    static OrderShipped shipped(String order) {
        return new OrderShipped(new Metadata(UUID.randomUUID().toString(), OffsetDateTime.now()), order);
    }

    static void consume(StreamBuilder stream, String kind) throws IOException {
        Listener<OrderShipped> print = events -> events.forEach(event ->
            System.out.println(kind + ": order " + event.order() + " in partition " + event.metadata().getPartition()));
        StreamParameters until3Events = new StreamParameters().withBatchLimit(2).withStreamLimit(3);
        try {
            // By default fahrschein opens the next stream when one ends, until its thread is interrupted.
            stream.withStreamParameters(until3Events).withBackoffStrategy(new NoBackoffStrategy())
                .listen(OrderShipped.class, print);
        } catch (EOFException ex) {
            System.out.println(kind + ": ended");
        }
    }

    /** The last offset of each partition; an application stores them with the results of its work. */
    static class CursorsInMemory implements CursorManager {
        private final Map<String, Cursor> cursors = new ConcurrentHashMap<>();

        @Override
        public void onSuccess(String eventType, Cursor cursor) {
            cursors.put(cursor.getPartition(), cursor);
        }

        @Override
        public void onSuccess(String eventType, List<Cursor> list) {
            list.forEach(cursor -> onSuccess(eventType, cursor));
        }

        @Override
        public Collection<Cursor> getCursors(String eventType) {
            return cursors.values();
        }
    }
}
