import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/** Sends records through chains of transformations, and configurations through their judgement, a line in and a line out. */
public class RecordChains {
    static final ObjectMapper JSON = new ObjectMapper();

    record Stage(Transformation<SourceRecord> transformation, Predicate<SourceRecord> predicate, boolean negate) {
        boolean takes(SourceRecord record) {
            return predicate == null || predicate.test(record) != negate;
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode given = JSON.readTree(line);
            JsonNode told = given.has("stages") ? sent(given) : judged(given);
            System.out.println("told:" + JSON.writeValueAsString(told));
        }
    }

    static Map<String, String> config(JsonNode node) {
        Map<String, String> config = new HashMap<>();
        node.fields().forEachRemaining(each -> config.put(each.getKey(), each.getValue().asText()));
        return config;
    }

    static Object made(JsonNode node) throws Exception {
        return Class.forName(node.get("type").asText()).getDeclaredConstructor().newInstance();
    }

    static JsonConverter converter(boolean replacing, boolean key) {
        JsonConverter converter = new JsonConverter();
        String replaces = String.valueOf(replacing);
        converter.configure(Map.of("schemas.enable", "true", "replace.null.with.default", replaces), key);
        return converter;
    }

    static ObjectNode error(Exception error) {
        return JSON.createObjectNode().put("error", error.getClass().getSimpleName()).put("message", error.getMessage());
    }

    @SuppressWarnings("unchecked")
    static JsonNode judged(JsonNode given) throws Exception {
        ObjectNode told = JSON.createObjectNode();
        Map<String, String> config = config(given.get("config"));
        Transformation<SourceRecord> transformation = (Transformation<SourceRecord>) made(given);
        ObjectNode errors = told.putObject("validate");
        for (ConfigValue each : transformation.config().validate(config)) {
            if (!each.errorMessages().isEmpty()) {
                each.errorMessages().forEach(errors.putArray(each.name())::add);
            }
        }
        try {
            transformation.configure(config);
        } catch (Exception error) {
            told.set("configure", error(error));
        }
        return told;
    }

    /** Every record meets stages that have met no other: what they remember of others is no part of the answer. */
    static JsonNode sent(JsonNode given) throws Exception {
        boolean replacing = !given.path("keeps_nulls").asBoolean();
        ArrayNode told = JSON.createArrayNode();
        for (JsonNode each : given.get("records")) {
            try {
                told.add(applied(stages(given), each, converter(replacing, true), converter(replacing, false)));
            } catch (Exception error) {
                told.add(error(error));
            }
        }
        return told;
    }

    @SuppressWarnings("unchecked")
    static List<Stage> stages(JsonNode given) throws Exception {
        List<Stage> stages = new ArrayList<>();
        for (JsonNode each : given.get("stages")) {
            Transformation<SourceRecord> transformation = (Transformation<SourceRecord>) made(each);
            transformation.configure(config(each.get("config")));
            Predicate<SourceRecord> predicate = null;
            if (each.has("predicate")) {
                predicate = (Predicate<SourceRecord>) made(each.get("predicate"));
                predicate.configure(config(each.get("predicate").get("config")));
            }
            stages.add(new Stage(transformation, predicate, each.path("negate").asBoolean()));
        }
        return stages;
    }

    static JsonNode applied(List<Stage> stages, JsonNode given, JsonConverter keys, JsonConverter values)
            throws Exception {
        SourceRecord record = read(given, keys, values);
        for (Stage stage : stages) {
            if (stage.takes(record)) {
                record = stage.transformation().apply(record);
            }
            if (record == null) {
                return JSON.createObjectNode().put("dropped", true);
            }
        }
        return written(record, keys, values);
    }

    static SourceRecord read(JsonNode record, JsonConverter keys, JsonConverter values) throws Exception {
        SimpleHeaderConverter headerConverter = new SimpleHeaderConverter();
        SchemaAndValue key = part(keys, record.get("key"));
        SchemaAndValue value = part(values, record.get("value"));
        ConnectHeaders headers = new ConnectHeaders();
        for (JsonNode each : record.get("headers")) {
            byte[] data = each.get(1).isNull() ? null : each.get(1).asText().getBytes(StandardCharsets.UTF_8);
            headers.add(each.get(0).asText(), headerConverter.toConnectHeader("t", each.get(0).asText(), data));
        }
        return new SourceRecord(Map.of(), Map.of(), record.get("topic").asText(), 3, key.schema(), key.value(),
            value.schema(), value.value(), record.get("timestamp").asLong(), headers);
    }

    static SchemaAndValue part(JsonConverter converter, JsonNode node) throws Exception {
        return converter.toConnectData("t", node.isNull() ? null : JSON.writeValueAsBytes(node));
    }

    static JsonNode json(byte[] data) throws Exception {
        return data == null ? JSON.nullNode() : JSON.readTree(data);
    }

    static JsonNode written(SourceRecord record, JsonConverter keys, JsonConverter values) throws Exception {
        SimpleHeaderConverter headerConverter = new SimpleHeaderConverter();
        ObjectNode told = JSON.createObjectNode();
        told.put("topic", record.topic());
        told.put("partition", record.kafkaPartition());
        told.put("timestamp", record.timestamp());
        told.set("key", json(keys.fromConnectData("t", record.keySchema(), record.key())));
        told.set("value", json(values.fromConnectData("t", record.valueSchema(), record.value())));
        ArrayNode all = told.putArray("headers");
        for (Header each : record.headers()) {
            byte[] data = headerConverter.fromConnectHeader("t", each.key(), each.schema(), each.value());
            all.addArray().add(each.key()).add(data == null ? null : new String(data, StandardCharsets.UTF_8));
        }
        return told;
    }
}
