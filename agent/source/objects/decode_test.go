package objects

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestRefused(t *testing.T) {
	head := "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n"
	for _, tc := range []struct{ name, text, want string }{
		{"empty", "# nothing\n---\n", "it is empty"},
		{"binary", "\x7fELF\x00", "binary"},
		{"text", "hello\n", "no kind"},
		{"a pod", "apiVersion: v1\nkind: Pod\n", `kind "Pod"`},
		{"another group", "apiVersion: v2\nkind: Secret\n", `apiVersion "v2"`},
		{"no name", "apiVersion: v1\nkind: Secret\n", "metadata.name is missing"},
		{"bad name", "apiVersion: v1\nkind: Secret\nmetadata: {name: ../a}\n", "metadata.name"},
		{"bad namespace", "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: a.b}\n", "metadata.namespace"},
		{"bad key", head + "stringData: {a/b: x}\n", `data["a/b"]`},
		{"key dots", head + "stringData: {..: x}\n", `data[".."]`},
		{"handler that is none", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: a}\nhandler: ../x\n", "handler"},
		{"no base64", head + "data: {a: '*'}\n", "decode Secret"},
		{"too much data", head + "stringData: {a: " + strings.Repeat("x", 1<<20) + ", b: z}\n", "1048577 bytes, more than the 1048576 (1 MiB)"},
		{"double key", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: x}\nbinaryData: {a: YQ==}\n", `key "a" is in both data and binaryData`},
		{"list in a list", `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"List"}]}`, `kind "List"`},
		{"way out", "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\nspec: {hostPath: {path: /a/../b}}\n", "'..'"},
		{"slow number", "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\nspec: {capacity: {storage: 1e999999999}}\n", "exponent"},
		{"slow text", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\nspec: {resources: {requests: {storage: '1E-9999999'}}}\n", "exponent"},
		{"long number", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\nspec: {resources: {requests: {storage: '" + strings.Repeat("9", 1000) + "Ki'}}}\n", "too long"},
		{"too many lines", "kind: Secret\nx:\n" + strings.Repeat("- a\n", maxMarks), "lines and values"},
		{"too many documents", strings.Repeat("---\nkind: x\n", maxDocuments+1), "documents"},
		{"huge document", "kind: x\na: " + strings.Repeat("x", maxDocument), "bytes, the maximum is"},
		{"the second is bad", head + "---\nkind: x\n", "document 2: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			start := time.Now()
			d, err := decode([]byte(tc.text))
			if err == nil {
				t.Fatalf("passed: %v", d.objects)
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%.200q does not say %q", err, tc.want)
			}
			// What is refused for its cost would take hours: the bound is no measure
			// of the machine.
			if took := time.Since(start); took > time.Minute {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestWarned(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"unknown field", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndatas: {}\n", `unknown field "datas"`},
		{"a key twice", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: x, a: z}\n", `key "a" already set`},
		{"an object twice", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\n", "document 2: ConfigMap default/a: duplicate in this file"},
		{"a key twice in the second", "apiVersion: v1\nkind: List\nitems: []\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata: {a: x, a: z}\n", "document 2: using the last"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, err := decode([]byte(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			if len(d.objects) != 1 || len(d.warnings) != 1 || !strings.Contains(d.warnings[0], tc.want) {
				t.Errorf("%d objects, warned %q, want %q", len(d.objects), d.warnings, tc.want)
			}
		})
	}
}

func TestDangerous(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "1": false, "1Gi": false, "1e3": false, "1E99": false, "99E": false, "1e000000003": false,
		"1e100": true, "1E+100": true, "-1.5e-999": true, "name-1e100x": false, "pv-1e100": false, "KMG": false,
		"1e100Ki": true, strings.Repeat("1", 65): true, strings.Repeat("1", 64): false,
	} {
		if got := dangerous(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(configMap("a", "x") + "---\n" + configMap("b", "y")))
	f.Add([]byte("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: YQ==}\nstringData: {b: c}\n"))
	f.Add([]byte(`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"a"},"spec":{"capacity":{"storage":"1Gi"},"hostPath":{"path":"/x"}}}]}`))
	f.Add([]byte("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: c, namespace: x}\nspec: {volumeName: v}\n..."))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := decode(data)
		if err != nil {
			return
		}
		for k, o := range d.objects {
			if len(validation.IsDNS1123Subdomain(k.Name)) > 0 {
				t.Errorf("name %q", k.Name)
			}
			if (k.Kind == KindVolume) != (k.Namespace == "") {
				t.Errorf("%s in namespace %q", k.Kind, k.Namespace)
			}
			names := map[string]bool{}
			switch o := o.(type) {
			case *v1.ConfigMap:
				for name := range o.Data {
					names[name] = true
				}
				for name := range o.BinaryData {
					names[name] = true
				}
			case *v1.Secret:
				for name := range o.Data {
					names[name] = true
				}
			case *v1.PersistentVolume:
				if host := o.Spec.HostPath; host != nil && strings.Contains(host.Path+"/", "/../") {
					t.Errorf("path %q", host.Path)
				}
			}
			for name := range names {
				if name == "" || name == "." || strings.HasPrefix(name, "..") || strings.Contains(name, "/") {
					t.Errorf("key %q", name)
				}
			}
		}
	})
}
