// A writer and a reader in one process, by Kafka's Java client: what they are told goes into histories (history.py).
//
// java FaultClient BOOTSTRAP WRITER WRITER_HISTORY RATE GROUP READER READER_HISTORY TOPIC:PARTITIONS...
// The writer goes on until a line comes on standard input, the reader until there is no more of it.

import java.io.BufferedWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class FaultClient {
    static volatile boolean writing = true;
    static volatile boolean reading = true;

    static final class Log {
        final BufferedWriter file;
        long flushed;

        Log(String path) throws IOException {
            file = Files.newBufferedWriter(Path.of(path));
        }

        synchronized void put(String kind, Object... rest) {
            StringBuilder line = new StringBuilder(kind);
            line.append(String.format(Locale.ROOT, " %.6f", System.nanoTime() / 1e9));
            for (Object each : rest)
                line.append(' ').append(each);
            try {
                file.write(line.append('\n').toString());
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        synchronized void tick() throws IOException {
            if (System.nanoTime() - flushed > 500_000_000L) {
                flushed = System.nanoTime();
                file.flush();
            }
        }

        void reason(String kind, String place, Throwable error) {
            put(kind, (place + " " + String.valueOf(error).replaceAll("\\s+", "_")).trim());
        }

        synchronized void close(long left) throws IOException {
            put("end", left);
            file.close();
        }
    }

    static Map<String, Object> settings(String bootstrap, String client) {
        Map<String, Object> found = new HashMap<>();
        found.put("bootstrap.servers", bootstrap);
        found.put("client.id", client);
        return found;
    }

    static void write(String bootstrap, String name, Log log, double rate, List<TopicPartition> places)
            throws IOException, InterruptedException {
        Map<String, Object> settings = settings(bootstrap, name);
        settings.put("delivery.timeout.ms", 600_000);
        settings.put("linger.ms", 5);
        settings.put("max.block.ms", 600_000);
        AtomicLong unanswered = new AtomicLong();
        var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        log.put("writer", name, 1);
        String padding = ".".repeat(100);
        double owed = 0;
        long number = 0;
        long then = System.nanoTime();
        while (writing) {
            long now = System.nanoTime();
            owed = Math.min(owed + (now - then) / 1e9 * rate, rate / 10 + 1);
            then = now;
            for (; owed >= 1; owed--) {
                long which = number++;
                TopicPartition target = places.get((int) (which % places.size()));
                String place = target.topic() + " " + target.partition() + " " + which;
                byte[] value = (name + ":" + which + " " + padding).getBytes(StandardCharsets.UTF_8);
                log.put("w", place);
                unanswered.incrementAndGet();
                producer.send(new ProducerRecord<>(target.topic(), target.partition(), null, value), (told, error) -> {
                    unanswered.decrementAndGet();
                    if (error == null)
                        log.put("a", place, told.offset());
                    else
                        log.reason("x", place, error);
                });
            }
            log.tick();
            Thread.sleep(20);
        }
        producer.close(Duration.ofSeconds(120));
        log.close(unanswered.get());
    }

    static final class Reader implements ConsumerRebalanceListener {
        final Log log;
        final KafkaConsumer<byte[], byte[]> consumer;
        final Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();

        Reader(String bootstrap, String group, String name, Log log) {
            this.log = log;
            Map<String, Object> settings = settings(bootstrap, name);
            settings.put("group.id", group);
            settings.put("auto.offset.reset", "earliest");
            settings.put("enable.auto.commit", false);
            settings.put("session.timeout.ms", 10_000);
            consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            log.put("reader", group, name);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
            assigned.forEach(each -> log.put("+", each.topic(), each.partition()));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
            for (TopicPartition each : revoked) {
                positions.remove(each);
                log.put("-", each.topic(), each.partition());
            }
        }

        void committed(Map<TopicPartition, OffsetAndMetadata> offsets, Exception error) {
            if (error != null)
                log.reason("e", "", error);
            else
                offsets.forEach((each, to) -> log.put("c", each.topic(), each.partition(), to.offset()));
        }

        void run(Collection<String> topics) throws IOException {
            consumer.subscribe(topics, this);
            long then = System.nanoTime();
            while (reading) {
                log.tick();
                try {
                    for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(200))) {
                        String[] words = new String(each.value(), StandardCharsets.UTF_8).split(" ")[0].split(":");
                        String record = words.length == 2 ? words[0] + " " + words[1] : "? 0";
                        log.put("r", each.topic(), each.partition(), each.offset(), record);
                        positions.put(
                            new TopicPartition(each.topic(), each.partition()), new OffsetAndMetadata(each.offset() + 1));
                    }
                } catch (RuntimeException error) {
                    log.reason("e", "", error);
                }
                if (System.nanoTime() - then > 1_000_000_000L && !positions.isEmpty()) {
                    then = System.nanoTime();
                    consumer.commitAsync(new HashMap<>(positions), this::committed);
                }
            }
            consumer.close();
            log.close(0);
        }
    }

    interface Work {
        void run() throws Exception;
    }

    static Thread start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception error) {
                error.printStackTrace();
            }
        });
        thread.start();
        return thread;
    }

    public static void main(String[] words) throws Exception {
        List<TopicPartition> places = new ArrayList<>();
        List<String> topics = new ArrayList<>();
        for (int i = 7; i < words.length; i++) {
            String[] topic = words[i].split(":");
            topics.add(topic[0]);
            for (int partition = 0; partition < Integer.parseInt(topic[1]); partition++)
                places.add(new TopicPartition(topic[0], partition));
        }
        Log written = new Log(words[2]);
        Log read = new Log(words[6]);
        Thread writer = start(() -> write(words[0], words[1], written, Double.parseDouble(words[3]), places));
        Thread reader = start(() -> new Reader(words[0], words[4], words[5], read).run(topics));
        System.in.read();
        writing = false;
        System.in.readAllBytes();
        reading = false;
        writer.join();
        reader.join();
    }
}
