import com.fasterxml.jackson.databind.ObjectMapper;
import com.marcnuri.helm.Helm;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * Renders a chart as `helm template` does, once for each file of values; installs nothing.
 *
 * <p>Arguments: the chart's folder, a version of Kubernetes, and the files of values. Prints a JSON
 * list with an object for each file: its `rendered` text, or the reason it was `refused`.
 */
class HelmTemplate {
  public static void main(String[] arguments) throws Exception {
    List<Map<String, String>> answers = new ArrayList<>();
    for (String values : List.of(arguments).subList(2, arguments.length)) {
      answers.add(render(Path.of(arguments[0]), arguments[1], Path.of(values)));
    }
    System.out.println(new ObjectMapper().writeValueAsString(answers));
  }

  private static Map<String, String> render(Path chart, String kubernetes, Path values) {
    try {
      var command = new Helm(chart).template().withName("sidelook").withNamespace("spark");
      return Map.of(
          "rendered", command.withKubeVersion(kubernetes).withValuesFile(values).call());
    } catch (IllegalStateException refused) { // Helm's error about the chart or its values
      return Map.of("refused", refused.getMessage());
    }
  }
}
