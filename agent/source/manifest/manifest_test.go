package manifest_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/source/manifest"
)

var update = flag.Bool("update", false, "write the golden files anew")

var board = manifest.Origin{Source: pod.SourceFile, Location: "/etc/kubernetes/manifests/web.yaml", NodeName: "Board-1"}

const webYAML = `apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: server
    image: example.com/web:1
`

func TestGolden(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no inputs: %v", err)
	}
	for _, input := range inputs {
		t.Run(filepath.Base(input), func(t *testing.T) {
			data, err := os.ReadFile(input)
			if err != nil {
				t.Fatal(err)
			}
			m := manifest.Parse(data, board)
			if len(m.Problems) > 0 {
				t.Fatalf("problems: %v", m.Problems)
			}
			got, err := yaml.Marshal(m.Pods)
			if err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(input, ".in.yaml") + ".golden.yaml"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), string(got)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestIdentity(t *testing.T) {
	parse := func(text string, change func(*manifest.Origin)) *v1.Pod {
		t.Helper()
		origin := board
		if change != nil {
			change(&origin)
		}
		m := manifest.Parse([]byte(text), origin)
		if len(m.Pods) != 1 || len(m.Problems) != 0 {
			t.Fatalf("got %d pods, problems %v", len(m.Pods), m.Problems)
		}
		return m.Pods[0]
	}
	base := parse(webYAML, nil)

	if base.Name != "web-board-1" || base.Namespace != "default" || base.Spec.NodeName != "Board-1" {
		t.Errorf("named %s/%s on %s", base.Namespace, base.Name, base.Spec.NodeName)
	}
	if len(base.UID) != 32 || base.Annotations[pod.AnnotationHash] != string(base.UID) {
		t.Errorf("UID %q, hash %q", base.UID, base.Annotations[pod.AnnotationHash])
	}
	if base.Status.Phase != v1.PodPending {
		t.Errorf("phase %q", base.Status.Phase)
	}

	asJSON, err := yaml.YAMLToJSON([]byte(webYAML))
	if err != nil {
		t.Fatal(err)
	}
	copied := strings.Replace(webYAML, "  name: web\n", `  name: web
  creationTimestamp: "2026-01-01T00:00:00Z"
  deletionTimestamp: "2026-01-01T00:00:00Z"
  resourceVersion: "7"
  annotations:
    kubernetes.io/config.mirror: abc
    kubernetes.io/config.hash: abc
    kubernetes.io/config.seen: abc
`, 1) + "status:\n  phase: Running\n"

	for _, tt := range []struct {
		name   string
		text   string
		origin func(*manifest.Origin)
		same   bool
	}{
		{"again", webYAML, nil, true},
		{"as JSON", string(asJSON), nil, true},
		{"with comments", "# a web server\n---\n" + webYAML + "# end\n", nil, true},
		{"other image", strings.Replace(webYAML, "web:1", "web:2", 1), nil, false},
		{"other label", strings.Replace(webYAML, "  name: web\n", "  name: web\n  labels: {a: b}\n", 1), nil, false},
		{"other name", strings.Replace(webYAML, "name: web\n", "name: www\n", 1), nil, false},
		{"other file", webYAML, func(o *manifest.Origin) { o.Location = "/other.yaml" }, false},
		{"other node", webYAML, func(o *manifest.Origin) { o.NodeName = "board-2" }, false},
		{"by HTTP", webYAML, func(o *manifest.Origin) { o.Source = pod.SourceHTTP }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := parse(tt.text, tt.origin).UID; (got == base.UID) != tt.same {
				t.Errorf("UID %s beside %s, want the same: %v", got, base.UID, tt.same)
			}
		})
	}

	t.Run("of the manifest", func(t *testing.T) {
		const uid = "0d3e7f5c-6d0b-4c76-8a53-5bbf6c2f0001"
		p := parse(strings.Replace(webYAML, "  name: web\n", "  name: web\n  uid: "+uid+"\n", 1), nil)
		if p.UID != uid || p.Annotations[pod.AnnotationHash] != uid {
			t.Errorf("UID %q, hash %q", p.UID, p.Annotations[pod.AnnotationHash])
		}
	})
	t.Run("copied from a live pod", func(t *testing.T) {
		p := parse(copied, nil)
		if pod.IsMirror(p) || p.DeletionTimestamp != nil || p.Status.Phase != v1.PodPending || p.ResourceVersion != "" {
			t.Errorf("still live: %+v", p)
		}
	})
	t.Run("tolerations", func(t *testing.T) {
		want := []v1.Toleration{{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}}
		if d := cmp.Diff(want, base.Spec.Tolerations); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		some := webYAML + "  tolerations:\n  - {operator: Exists, effect: NoExecute, tolerationSeconds: 5}\n  - {operator: Exists, effect: NoExecute, tolerationSeconds: 6}\n"
		if d := cmp.Diff(append(want, want...), parse(some, nil).Spec.Tolerations); d != "" {
			t.Errorf("tolerations for some time, -want +got:\n%s", d)
		}
		if p := parse(webYAML, func(o *manifest.Origin) { o.Source = pod.SourceHTTP }); len(p.Spec.Tolerations) != 0 {
			t.Errorf("a pod by HTTP tolerates %v", p.Spec.Tolerations)
		}
	})
}

// TestText covers the text around the pods.
func TestText(t *testing.T) {
	second := strings.ReplaceAll(webYAML, "web", "db")
	item := func(text string) string {
		return "- " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
	}
	jsonOf := func(text string) string {
		data, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for _, tt := range []struct {
		name     string
		text     string
		pods     []string
		problems []string // parts of each problem, in order
		complete bool
	}{
		{"one", webYAML, []string{"web"}, nil, true},
		{"JSON", jsonOf(webYAML), []string{"web"}, nil, true},
		{"JSON with a byte order mark", "\ufeff" + jsonOf(webYAML), []string{"web"}, nil, true},
		{"CRLF", strings.ReplaceAll(webYAML+"---\n"+second, "\n", "\r\n"), []string{"web", "db"}, nil, true},
		{"two", webYAML + "---\n" + second, []string{"web", "db"}, nil, true},
		{"JSON after a marker", "---\n" + jsonOf(webYAML) + "\n---\n" + jsonOf(second), []string{"web", "db"}, nil, true},
		{"empty documents between", "---\n---\n# nothing\n--- # first\n" + webYAML + "...\n---\n\n---\n" + second + "---\n", []string{"web", "db"}, nil, true},
		{"directive", "%YAML 1.1\n---\n" + webYAML, []string{"web"}, nil, true},
		{"end marker without a start", webYAML + "...\n" + second, []string{"web", "db"}, nil, true},
		{"marker within a word", strings.Replace(webYAML, "spec:", "  labels:\n    a: x\nspec:", 1) + "#----\n", []string{"web"}, nil, true},
		{"PodList", "apiVersion: v1\nkind: PodList\nitems:\n" + item(webYAML) + item(second), []string{"web", "db"}, nil, true},
		{"List", "apiVersion: v1\nkind: List\nitems:\n" + item(webYAML), []string{"web"}, nil, true},
		{"PodList of items without kind", "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n  spec: {containers: [{name: a, image: a}]}\n", []string{"a"}, nil, true},
		{"list without items", "apiVersion: v1\nkind: PodList\nitems: []\n", nil, nil, true},

		{"nothing", "", nil, []string{"it is empty"}, false},
		{"space", " \n\t\n", nil, []string{"it is empty"}, false},
		{"comments only", "# soon\n---\n", nil, []string{"it is empty"}, false},
		{"binary", "\x7fELF\x02\x01\x01\x00\x00", nil, []string{"it is binary"}, false},
		{"UTF-16", "\xff\xfea\x00p\x00", nil, []string{"it is binary"}, false},
		{"not UTF-8", "kind: \xff\xfe\n", nil, []string{"parse YAML"}, false},
		{"a log", strings.Repeat("12:00 started\n", 100), nil, []string{"no kind"}, false},
		{"half-written YAML", webYAML[:strings.Index(webYAML, ": example")], nil, []string{"parse YAML"}, false},
		{"half-written YAML that parses", webYAML[:strings.Index(webYAML, "    image")], nil, []string{"spec.containers[0].image: Required"}, false},
		{"half-written JSON", jsonOf(webYAML)[:60], nil, []string{"parse YAML"}, false},
		{"tabs", "kind: Pod\n\tmetadata:\n", nil, []string{"parse YAML"}, false},
		{"a list at the top", "- kind: Pod\n", nil, []string{"not an object"}, false},
		{"a word", "kind\n", nil, []string{"not an object"}, false},
		{"no kind", "apiVersion: v1\nspec: {a: kind}\n", nil, []string{"kind is missing"}, false},
		{"no version", "kind: Pod\n", nil, []string{"apiVersion is missing"}, false},
		{"another kind", strings.Replace(webYAML, "kind: Pod", "kind: Service", 1), nil, []string{`kind "Service" of apiVersion "v1" is not`}, false},
		{"another version", strings.Replace(webYAML, "apiVersion: v1", "apiVersion: v2", 1), nil, []string{`apiVersion "v2" is not`}, false},
		{"kind of a wrong type", "apiVersion: v1\nkind: [Pod]\n", nil, []string{"read apiVersion and kind"}, false},
		{"wrong type", strings.Replace(webYAML, "name: server", "name: [server]", 1), nil, []string{"decode v1 Pod"}, false},
		{"bad quantity", webYAML + "    resources: {limits: {memory: lots}}\n", nil, []string{"decode v1 Pod"}, false},
		{"no metadata", "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: a, image: a}]}\n", nil, []string{"metadata.name: Required"}, false},
		{"generateName alone", strings.Replace(webYAML, "name: web", "generateName: web", 1), nil, []string{"metadata.name: Required"}, false},
		{"null items", "apiVersion: v1\nkind: List\nitems: [null, 3]\n", nil, []string{"item 1: not an object", "item 2: "}, false},
		{"many values in YAML", "kind: [" + strings.Repeat("a,", 100001) + "]", nil, []string{"more than 100000 values"}, false},
		{"many values in JSON", `{"kind":"Pod","a":[` + strings.Repeat("0,", 100001) + "0]}", nil, []string{"more than 100000 values"}, false},
		{"many values by aliases", "kind: Pod\na: &a [" + strings.Repeat("b,", 1999) + "b]\nc: [" + strings.Repeat("*a,", 59) + "*a]\n", nil, []string{"more than 100000 values"}, false},
		{"many containers", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[` + strings.Repeat("{},", 4096) + "{}]}}", nil, []string{"spec.containers: Too many"}, false},
		{"many documents", strings.Repeat("---\nkind\n", 1001), nil, []string{"more than 1000 documents"}, false},
		{"many pods", "apiVersion: v1\nkind: List\nitems:\n" + item(webYAML) + "---\n" + `{"apiVersion":"v1","kind":"PodList","items":[` + strings.Repeat("{},", 999) + "{}]}", []string{"web"}, []string{"document 2: more than 1000"}, false},
		{"many items", `{"apiVersion":"v1","kind":"List","items":[` + strings.Repeat("{},", 4096) + "{}]}", nil, []string{"items: Too many"}, false},
		{"alias bomb", "kind: Pod\napiVersion: v1\na: &a [x,x,x,x,x,x,x,x,x]\n" + bomb(), nil, []string{"parse YAML"}, false},
		{"deep", "kind: " + strings.Repeat("[", 20000), nil, []string{"parse YAML"}, false},
		{"too large a document", "kind: Pod\n#" + strings.Repeat("x", 3<<20), nil, []string{"the maximum is 3145728"}, false},

		{"unknown field", webYAML + "  color: red\n", []string{"web"}, []string{`unknown field "spec.color"`}, true},
		{"field in another case", webYAML + "  HostNetwork: true\n", []string{"web"}, []string{`unknown field "spec.HostNetwork"`}, true},
		{"key twice", webYAML + "  hostNetwork: false\n  hostNetwork: true\n", []string{"web"}, []string{"already set"}, true},
		{"key twice in JSON", strings.Replace(jsonOf(webYAML), `"kind"`, `"kind":"Pod","kind"`, 1), []string{"web"}, []string{`duplicate field "kind"`}, true},

		{"bad between good", webYAML + "---\nkind: Service\n---\n" + second, []string{"web", "db"}, []string{"document 2: apiVersion is missing"}, false},
		{"bad item between good", "apiVersion: v1\nkind: List\nitems:\n" + item(webYAML) + "- {apiVersion: v1, kind: Secret}\n" + item(second), []string{"web", "db"}, []string{`item 2: kind "Secret"`}, false},
		{"bad item in a second document", webYAML + "---\napiVersion: v1\nkind: List\nitems: [{}]\n", []string{"web"}, []string{"document 2, item 1: kind is missing"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := manifest.Parse([]byte(tt.text), board)
			var names []string
			for _, p := range m.Pods {
				names = append(names, strings.TrimSuffix(p.Name, "-board-1"))
			}
			if d := cmp.Diff(tt.pods, names); d != "" {
				t.Errorf("pods: -want +got:\n%s", d)
			}
			if len(m.Problems) != len(tt.problems) {
				t.Fatalf("problems %v, want %d", m.Problems, len(tt.problems))
			}
			for i, want := range tt.problems {
				if got := m.Problems[i].Place + ": " + m.Problems[i].Err.Error(); !strings.Contains(got, want) {
					t.Errorf("problem %q, want %q in it", got, want)
				}
			}
			if m.Complete() != tt.complete {
				t.Errorf("complete: %v", m.Complete())
			}
		})
	}
}

// bomb is YAML that grows by nine with each line.
func bomb() string {
	var b strings.Builder
	for c := 'b'; c <= 'i'; c++ {
		fmt.Fprintf(&b, "%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat("*"+string(c-1)+",", 9), ","))
	}
	return b.String()
}

func TestProblemNamesThePod(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       pod.Ref
	}{
		{"invalid", "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\n", pod.Ref{Namespace: "shop", Name: "web-board-1"}},
		{"unnamed", "apiVersion: v1\nkind: Pod\n", pod.Ref{}},
		{"no name at all", "apiVersion: v1\nkind: Pod\nmetadata: {name: '../../etc'}\n", pod.Ref{}},
		{"no namespace at all", "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: 'a b'}\n", pod.Ref{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := manifest.Parse([]byte(tt.text), board)
			if len(m.Problems) != 1 || m.Problems[0].Pod != tt.want {
				t.Errorf("problems %+v, want one of %v", m.Problems, tt.want)
			}
		})
	}
}
