import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/** Applies Kafka's own transformations to the cases of connect_transforms.jsonl, a line in and a line out. */
public class RecordTransforms {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode given = (ObjectNode) JSON.readTree(line);
            ObjectNode told = given.putObject("told");
            try {
                apply(given, told);
            } catch (Exception error) {
                told.removeAll();
                told.put("error", error.getClass().getSimpleName());
                told.put("message", error.getMessage());
            }
            System.out.println(JSON.writeValueAsString(given));
        }
    }

    static JsonConverter converter(boolean schemas, boolean key) {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", String.valueOf(schemas)), key);
        return converter;
    }

    static SchemaAndValue read(JsonConverter converter, JsonNode node) throws Exception {
        byte[] data = node == null || node.isNull() ? null : JSON.writeValueAsBytes(node);
        return converter.toConnectData("t", data);
    }

    static JsonNode written(byte[] data) throws Exception {
        return data == null ? JSON.nullNode() : JSON.readTree(data);
    }

    @SuppressWarnings("unchecked")
    static void apply(ObjectNode given, ObjectNode told) throws Exception {
        boolean schemas = given.get("schemas").asBoolean();
        JsonConverter keys = converter(schemas, true);
        JsonConverter values = converter(schemas, false);
        SimpleHeaderConverter headerConverter = new SimpleHeaderConverter();
        JsonNode record = given.get("record");
        SchemaAndValue key = read(keys, record.get("key"));
        SchemaAndValue value = read(values, record.get("value"));
        ConnectHeaders headers = new ConnectHeaders();
        for (JsonNode each : record.withArray("headers")) {
            byte[] data = each.get(1).isNull() ? null : each.get(1).asText().getBytes(StandardCharsets.UTF_8);
            headers.add(each.get(0).asText(), headerConverter.toConnectHeader("t", each.get(0).asText(), data));
        }
        SinkRecord sunk = new SinkRecord(record.get("topic").asText(), 3, key.schema(), key.value(), value.schema(),
            value.value(), 42, record.get("timestamp").isNull() ? null : record.get("timestamp").asLong(),
            TimestampType.CREATE_TIME, headers);
        Map<String, String> config = new HashMap<>();
        given.get("config").fields().forEachRemaining(each -> config.put(each.getKey(), each.getValue().asText()));
        Object made = Class.forName(given.get("type").asText()).getDeclaredConstructor().newInstance();
        if (made instanceof Predicate) {
            Predicate<SinkRecord> predicate = (Predicate<SinkRecord>) made;
            predicate.configure(config);
            told.put("holds", predicate.test(sunk));
            return;
        }
        Transformation<SinkRecord> transformation = (Transformation<SinkRecord>) made;
        transformation.configure(config);
        SinkRecord out = transformation.apply(sunk);
        if (out == null) {
            told.put("dropped", true);
            return;
        }
        told.put("topic", out.topic());
        told.put("partition", out.kafkaPartition());
        told.put("timestamp", out.timestamp());
        told.set("key", written(keys.fromConnectData("t", out.keySchema(), out.key())));
        told.set("value", written(values.fromConnectData("t", out.valueSchema(), out.value())));
        ArrayNode all = told.putArray("headers");
        for (Header each : out.headers()) {
            byte[] data = headerConverter.fromConnectHeader("t", each.key(), each.schema(), each.value());
            ArrayNode pair = all.addArray();
            pair.add(each.key());
            pair.add(data == null ? null : new String(data, StandardCharsets.UTF_8));
        }
    }
}
