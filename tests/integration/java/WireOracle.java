import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.InvalidMetadataException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.requests.RequestHeader;

/** Answers one line per line of standard input with what Kafka's own classes make of it. */
public class WireOracle {
    static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = input.readLine()) != null) {
            String[] words = line.split(" ", -1);
            String answer;
            try {
                answer = switch (words[0]) {
                    case "message" -> message(words[1], Short.parseShort(words[2]), HEX.parseHex(words[3]));
                    case "header" -> header(HEX.parseHex(words[1]));
                    case "records" -> records(HEX.parseHex(words[1]));
                    case "build" -> build(words[1], Integer.parseInt(words[2]));
                    case "errors" -> errors();
                    default -> "what?";
                };
            } catch (Throwable problem) {
                answer = "failed " + problem.toString().replace('\n', ' ');
            }
            System.out.println(answer);
        }
    }

    /** Reads a message and writes it again. */
    static String message(String name, short version, byte[] bytes) throws Exception {
        ApiMessage message = (ApiMessage) Class.forName("org.apache.kafka.common.message." + name + "Data")
            .getDeclaredConstructor().newInstance();
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        message.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining())
            return "left " + buffer.remaining();
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(out), cache, version);
        return Arrays.equals(out.array(), bytes) ? "same" : "differs " + HEX.formatHex(out.array());
    }

    static String header(byte[] bytes) {
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        RequestHeader header = RequestHeader.parse(buffer);
        return header.apiKey().id + " " + header.apiVersion() + " " + header.correlationId() + " " + header.clientId()
            + " " + buffer.position();
    }

    static String records(byte[] bytes) {
        StringBuilder out = new StringBuilder();
        for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)).batches()) {
            batch.ensureValid();
            for (var record : batch) {
                out.append(record.offset()).append(',').append(record.timestamp()).append(',')
                    .append(hex(record.key())).append(',').append(hex(record.value()));
                for (Header header : record.headers())
                    out.append(',').append(header.key()).append('=')
                        .append(header.value() == null ? "null" : HEX.formatHex(header.value()));
                out.append(';');
            }
        }
        return out.toString();
    }

    static String hex(ByteBuffer buffer) {
        if (buffer == null)
            return "null";
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return HEX.formatHex(bytes);
    }

    static String build(String codec, int count) {
        SimpleRecord[] records = new SimpleRecord[count];
        for (int i = 0; i < count; i++)
            records[i] = new SimpleRecord(1000 + i, i % 3 == 0 ? null : ("k" + i).getBytes(), ("value " + i).repeat(i % 60).getBytes(),
                i % 2 == 0 ? new Header[0] : new Header[] {new RecordHeader("h", new byte[] {1}), new RecordHeader("n", (byte[]) null)});
        MemoryRecords built = MemoryRecords.withRecords(Compression.of(CompressionType.forName(codec)).build(), records);
        byte[] bytes = new byte[built.sizeInBytes()];
        built.buffer().get(bytes);
        return HEX.formatHex(bytes);
    }

    static String errors() {
        StringBuilder out = new StringBuilder();
        for (Errors error : Errors.values())
            out.append(error.code()).append(',').append(error.name()).append(',')
                .append(error.exception() instanceof RetriableException).append(',')
                .append(error.exception() instanceof InvalidMetadataException).append(';');
        return out.toString();
    }
}
