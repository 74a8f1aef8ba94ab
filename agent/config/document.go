package config

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

// Warning is a problem of the configuration that does not prevent the start. The
// caller logs it, once the log is set up by the configuration.
type Warning struct {
	Message string // constant
	Attrs   []slog.Attr
}

type file struct {
	name string // absolute path
	data []byte
}

// layer holds the settings of one file, by kind. A map is nil if the file has no
// such document.
type layer struct {
	kubelet, tinylet map[string]any
}

// parse decodes a file's documents and checks each separately. Errors and warnings name
// the file and the document. Documents are counted from 1, without empty ones.
func (f file) parse() (layer, []Warning, error) {
	var (
		out      layer
		warnings []Warning
	)
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(f.data)))
	for number := 1; ; {
		data, err := docs.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return out, warnings, f.fault(number, err)
		}
		doc, err := toDocument(data)
		if err != nil {
			return out, warnings, f.fault(number, err)
		}
		if doc.fields == nil {
			continue
		}
		if err := doc.storeIn(&out, filepath.Dir(f.name)); err != nil {
			return out, warnings, f.fault(number, err)
		}
		if len(doc.strict) > 0 {
			warnings = append(warnings, Warning{"ignore invalid fields of configuration", []slog.Attr{
				slog.String("file", f.name), slog.Int("document", number), slog.String("error", oneLine(errors.Join(doc.strict...))),
			}})
		}
		number++
	}
	if out.kubelet == nil && out.tinylet == nil {
		return out, warnings, fmt.Errorf("%s: no configuration: expected a document of kind %s or %s", f.name, kubeletKind, tinyletKind)
	}
	return out, warnings, nil
}

func (f file) fault(number int, err error) error {
	return fmt.Errorf("%s: document %d: %w", f.name, number, err)
}

// document is one YAML or JSON document, as fields and as JSON.
type document struct {
	fields map[string]any // nil if empty
	json   []byte
	strict []error // errors of strict decoding only
}

func toDocument(data []byte) (document, error) {
	var doc document
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		// Only strict decoding rejects duplicate keys.
		doc.strict = append(doc.strict, err)
		if asJSON, err = yaml.YAMLToJSON(data); err != nil {
			return doc, err
		}
	}
	doc.json = asJSON
	if kjson.UnmarshalCaseSensitivePreserveInts(asJSON, &doc.fields) != nil {
		return doc, errors.New("not a mapping of fields: expected apiVersion, kind and settings")
	}
	return doc, nil
}

// storeIn checks the document by its kind and stores its fields in out. Relative
// paths in a KubeletConfiguration are relative to dir. Its unknown and duplicate fields
// cause a warning only, as in the kubelet
// (pkg/kubelet/kubeletconfig/util/codec/codec.go).
func (d *document) storeIn(out *layer, dir string) error {
	apiVersion, _ := d.fields["apiVersion"].(string)
	kind, _ := d.fields["kind"].(string)
	var (
		want   string
		into   any
		fields *map[string]any
	)
	switch kind {
	case kubeletKind:
		want, into, fields = kubelet.APIVersion, &kubelet.KubeletConfiguration{}, &out.kubelet
	case tinyletKind:
		want, into, fields = tinyletAPIVersion, &TinyletConfiguration{}, &out.tinylet
	default:
		return fmt.Errorf("kind %q is unknown: expected %s or %s", kind, kubeletKind, tinyletKind)
	}
	if apiVersion != want {
		return fmt.Errorf("apiVersion %q of %s is unknown: expected %s", apiVersion, kind, want)
	}
	if *fields != nil {
		return fmt.Errorf("second %s: a file may have only one", kind)
	}
	unknown, err := kjson.UnmarshalStrict(d.json, into)
	if err != nil {
		return nameField(d.fields, into, err)
	}
	switch {
	case kind == kubeletKind:
		if len(d.strict) == 0 { // duplicate keys are in both lists
			d.strict = unknown
		}
		makeAbsolute(d.fields, dir)
	case len(d.strict)+len(unknown) > 0:
		return fmt.Errorf("%s: %w", kind, errors.Join(append(d.strict, unknown...)...))
	}
	*fields = d.fields
	return nil
}

// nameField adds the field to a decoding error, since the errors of some types
// (durations, quantities) do not name it. into is a scratch value of the
// document's type.
func nameField(fields map[string]any, into any, err error) error {
	for name, value := range sorted(fields) {
		data, marshalErr := json.Marshal(map[string]any{name: value})
		if marshalErr != nil {
			continue
		}
		if fieldErr := kjson.UnmarshalCaseSensitivePreserveInts(data, into); fieldErr != nil {
			return fmt.Errorf("field %s: %w", name, fieldErr)
		}
	}
	return err
}

// pathFields are the settings that hold a path
// (pkg/kubelet/apis/config/helpers.go).
var pathFields = [][]string{
	{"staticPodPath"}, {"tlsCertFile"}, {"tlsPrivateKeyFile"}, {"resolvConf"},
	{"volumePluginDir"}, {"podLogsDir"}, {"authentication", "x509", "clientCAFile"},
}

func makeAbsolute(fields map[string]any, dir string) {
	for _, path := range pathFields {
		parent, last := fields, len(path)-1
		for _, name := range path[:last] {
			parent, _ = parent[name].(map[string]any)
		}
		value, _ := parent[path[last]].(string)
		if value != "" && !filepath.IsAbs(value) {
			parent[path[last]] = filepath.Join(dir, value)
		}
	}
}

// sorted yields a map's entries in the order of their keys.
func sorted[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if !yield(name, m[name]) {
				return
			}
		}
	}
}
