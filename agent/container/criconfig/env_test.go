package criconfig

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// envInput is a container c of pod p in ns with a volume v that holds the
// files env and bad, a ConfigMap m and a Secret s.
func envInput() ContainerInput {
	p := podOf(v1.Container{Name: "c"})
	p.Name, p.Namespace, p.UID = "p", "ns", "u"
	p.Spec.Volumes = []v1.Volume{{Name: "v"}}
	in := inputFor(p, &p.Spec.Containers[0], board())
	in.ConfigMaps = map[string]*v1.ConfigMap{
		"m":     {Data: map[string]string{"B": "m2", "A": "m1", "c.d-e": "m3"}, BinaryData: map[string][]byte{"X": {1}}},
		"m2":    {Data: map[string]string{"A": "second"}},
		"wrong": {Data: map[string]string{"a=b": "x", "": "x", "Z": "z", "\x00": "x"}},
	}
	in.Secrets = map[string]*v1.Secret{"s": {Data: map[string][]byte{"A": []byte("s1"), "S": []byte("s2")}}}
	in.ReadEnvFile = func(volume, path string) ([]byte, error) {
		if volume != "v" {
			return nil, fmt.Errorf("volume %q: %w", volume, fs.ErrInvalid)
		}
		switch path {
		case "env":
			return []byte("# made by init\nA='f1'\nEMPTY=''\nLONG='x\ny'\n"), nil
		case "bad":
			return []byte("A=secret\n"), nil
		}
		return nil, fs.ErrNotExist
	}
	return in
}

func configMapAll(prefix, name string, optional *bool) v1.EnvFromSource {
	return v1.EnvFromSource{Prefix: prefix, ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: name}, Optional: optional}}
}

func secretAll(prefix, name string, optional *bool) v1.EnvFromSource {
	return v1.EnvFromSource{Prefix: prefix, SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: name}, Optional: optional}}
}

func configMapKey(name, object, key string, optional *bool) v1.EnvVar {
	return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: object}, Key: key, Optional: optional,
	}}}
}

func secretKey(name, object, key string, optional *bool) v1.EnvVar {
	return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: object}, Key: key, Optional: optional,
	}}}
}

func fileKey(name, path, key string, optional *bool) v1.EnvVar {
	return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{
		VolumeName: "v", Path: path, Key: key, Optional: optional,
	}}}
}

func TestEnvironment(t *testing.T) {
	for _, tc := range []struct {
		name string
		from []v1.EnvFromSource
		env  []v1.EnvVar
		want string
	}{
		{"nothing", nil, nil, ""},
		{"a whole config map, by its keys", []v1.EnvFromSource{configMapAll("", "m", nil)}, nil, "A=m1 B=m2 c.d-e=m3"},
		{"the last object wins", []v1.EnvFromSource{configMapAll("", "m", nil), configMapAll("", "m2", nil), secretAll("", "s", nil)}, nil, "A=s1 B=m2 c.d-e=m3 S=s2"},
		{"prefixes", []v1.EnvFromSource{configMapAll("P_", "m2", nil), secretAll("P-", "s", nil)}, nil, "P_A=second P-A=s1 P-S=s2"},
		{"optional and missing", []v1.EnvFromSource{configMapAll("", "no", new(true)), secretAll("", "no", new(true)), configMapAll("", "m2", new(true))}, nil, "A=second"},
		{"names that cannot be", []v1.EnvFromSource{configMapAll("", "wrong", nil)}, nil, "Z=z"},
		{"a prefix can make a name", []v1.EnvFromSource{configMapAll("p", "wrong", nil)}, nil, "p=x pZ=z"},
		{"no source at all", []v1.EnvFromSource{{}}, []v1.EnvVar{{Name: "X", ValueFrom: &v1.EnvVarSource{}}}, "X="},
		{"one variable wins over an object", []v1.EnvFromSource{secretAll("", "s", nil)}, []v1.EnvVar{{Name: "A", Value: "own"}}, "A=own S=s2"},
		{"and refers to it", []v1.EnvFromSource{secretAll("", "s", nil)}, []v1.EnvVar{{Name: "A", Value: "<$(A)$(S)>"}}, "A=<s1s2> S=s2"},
		{"keys", nil, []v1.EnvVar{configMapKey("X", "m", "c.d-e", nil), secretKey("Y", "s", "S", new(false))}, "X=m3 Y=s2"},
		{"optional keys", nil, []v1.EnvVar{
			configMapKey("X", "m", "no", new(true)), configMapKey("X", "no", "no", new(true)),
			secretKey("Y", "s", "no", new(true)), secretKey("Y", "no", "no", new(true)), secretKey("Z", "s", "S", new(true)),
		}, "Z=s2"},
		{"an optional key leaves what was", nil, []v1.EnvVar{{Name: "X", Value: "1"}, configMapKey("X", "m", "no", new(true))}, "X=1"},
		{"sources are not expanded", []v1.EnvFromSource{configMapAll("", "dollar", nil)}, []v1.EnvVar{configMapKey("X", "dollar", "D", nil)}, "D=$(A) X=$(A)"},
		{"a value wins over its source", nil, []v1.EnvVar{{Name: "X", Value: "v", ValueFrom: configMapKey("", "no", "no", nil).ValueFrom}}, "X=v"},
		{"files", nil, []v1.EnvVar{fileKey("X", "env", "A", nil), fileKey("Y", "env", "LONG", new(true))}, "X=f1 Y=x\ny"},
		{"optional files", nil, []v1.EnvVar{fileKey("X", "no", "A", new(true)), fileKey("Y", "env", "no", new(true)), fileKey("Z", "env", "EMPTY", new(true))}, ""},
		{"forward, backward, to itself", nil, []v1.EnvVar{{Name: "A", Value: "$(B)"}, {Name: "B", Value: "$(A)"}, {Name: "C", Value: "$(C)$(B)"}}, "A=$(B) B=$(B) C=$(C)$(B)"},
		{"again and again", nil, []v1.EnvVar{{Name: "A", Value: "x"}, {Name: "A", Value: "$(A)$(A)"}, {Name: "A", Value: "$(A)$(A)"}}, "A=xxxx"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := envInput()
			in.ConfigMaps["dollar"] = &v1.ConfigMap{Data: map[string]string{"D": "$(A)"}}
			in.Container.EnvFrom, in.Container.Env = tc.from, tc.env
			config, err := ContainerConfig(in)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, kv := range config.GetEnvs() {
				got = append(got, kv.GetKey()+"="+string(kv.GetValue()))
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFileErrorsTellNothing(t *testing.T) {
	in := envInput()
	in.Container.Env = []v1.EnvVar{fileKey("X", "bad", "A", nil)}
	_, err := ContainerConfig(in)
	if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "line 1: ") {
		t.Errorf("got %v", err)
	}
}

func TestEnvRefs(t *testing.T) {
	c := &v1.Container{
		EnvFrom: []v1.EnvFromSource{configMapAll("", "a", new(true)), secretAll("", "s", nil), configMapAll("x", "a", nil)},
		Env: []v1.EnvVar{
			{Name: "PLAIN"}, configMapKey("X", "b", "k", nil), secretKey("X", "s", "k", nil), secretKey("X", "t", "k", new(true)),
			fileKey("X", "env", "k", nil),
		},
	}
	configMaps, secrets := EnvRefs(c)
	if diff := cmp.Diff([][]string{{"a", "b"}, {"s", "t"}}, [][]string{configMaps, secrets}); diff != "" {
		t.Error(diff)
	}
}

func TestContainerWarnings(t *testing.T) {
	in := envInput()
	in.Secrets["odd"] = &v1.Secret{Data: map[string][]byte{"=": nil}}
	in.Container.EnvFrom = []v1.EnvFromSource{
		configMapAll("", "m", nil), configMapAll("", "wrong", nil), configMapAll("", "no", new(true)), secretAll("x", "odd", nil), secretAll("", "no", nil), {},
	}
	want := []Warning{
		{"InvalidEnvironmentVariableNames", "Keys [, \x00, a=b] from the EnvFrom ConfigMap ns/wrong were skipped since they are considered invalid environment variable names."},
		{"InvalidEnvironmentVariableNames", "Keys [=] from the EnvFrom Secret ns/odd were skipped since they are considered invalid environment variable names."},
	}
	if diff := cmp.Diff(want, ContainerWarnings(&in)); diff != "" {
		t.Error(diff)
	}
}
