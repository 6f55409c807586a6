import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.reflect.Field;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * Prints the JSON schema of Java classes for objects of Kubernetes: their fields with types, and no
 * further rules.
 *
 * <p>Arguments: the names of the classes, which are generated from the operator's Go types.
 */
class ModelSchema {
  private static final String MODELS = "io.fabric8.";
  // Types whose JSON form differs from the fields of their class.
  private static final Map<String, Object> WRITTEN =
      Map.of(
          "IntOrString", Map.of("type", List.of("integer", "string")),
          "Quantity", Map.of("type", List.of("number", "string")),
          "Duration", Map.of("type", "string"));

  private final Map<String, Object> definitions = new TreeMap<>();

  public static void main(String[] names) throws Exception {
    var schemas = new ModelSchema();
    List<Object> roots = new ArrayList<>();
    for (String name : names) {
      roots.add(schemas.of(Class.forName(name)));
    }
    var schema = Map.of("roots", roots, "$defs", schemas.definitions);
    System.out.println(new ObjectMapper().writeValueAsString(schema));
  }

  private Object of(Type type) {
    if (type instanceof ParameterizedType generic) {
      Type[] parts = generic.getActualTypeArguments();
      return generic.getRawType() == List.class
          ? Map.of("type", "array", "items", of(parts[0]))
          : Map.of("type", "object", "additionalProperties", of(parts[1]));
    }
    var plain = (Class<?>) type;
    if (WRITTEN.containsKey(plain.getSimpleName())) {
      return WRITTEN.get(plain.getSimpleName());
    }
    return plain.getName().startsWith(MODELS) ? reference(plain) : scalar(plain);
  }

  private Object reference(Class<?> model) {
    if (definitions.putIfAbsent(model.getName(), Map.of()) == null) {
      definitions.put(model.getName(), fields(model));
    }
    return Map.of("$ref", "#/$defs/" + model.getName());
  }

  private Object fields(Class<?> model) {
    Map<String, Object> properties = new LinkedHashMap<>();
    for (Field field : model.getDeclaredFields()) {
      JsonProperty property = field.getAnnotation(JsonProperty.class);
      if (property != null) {
        properties.put(property.value(), of(field.getGenericType()));
      }
    }
    return Map.of("type", "object", "properties", properties, "additionalProperties", false);
  }

  private static Object scalar(Class<?> plain) {
    return switch (plain.getSimpleName()) {
      case "String" -> Map.of("type", "string");
      case "Boolean" -> Map.of("type", "boolean");
      case "Integer", "Long" -> Map.of("type", "integer");
      case "Float", "Double" -> Map.of("type", "number");
      case "Object" -> Map.of();
      default -> throw new IllegalArgumentException("no JSON type is known for " + plain);
    };
  }
}
