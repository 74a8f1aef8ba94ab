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
	kubelet "k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Warning is what a user should know and what does not stop the agent. It is
// for the log, which the configuration itself sets up.
type Warning struct {
	Message string // constant
	Attrs   []slog.Attr
}

// file is one configuration file that has been read.
type file struct {
	name string // as the user wrote it
	data []byte
}

// layer is what one file sets, by kind; nil where it has no such document.
type layer struct {
	kubelet, tinylet map[string]any
}

// parse reads a file's documents and checks each by itself. An error names
// the file and the document, counted from 1 without empty ones.
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
			warnings = append(warnings, Warning{"configuration has fields that are ignored", []slog.Attr{
				slog.String("file", f.name), slog.Int("document", number), slog.String("error", oneLine(errors.Join(doc.strict...))),
			}})
		}
		number++
	}
	if out.kubelet == nil && out.tinylet == nil {
		return out, warnings, fmt.Errorf("%s: holds no configuration: expected a document with kind %s or %s", f.name, kubeletKind, tinyletKind)
	}
	return out, warnings, nil
}

func (f file) fault(number int, err error) error {
	return fmt.Errorf("%s: document %d: %w", f.name, number, err)
}

// document is one YAML or JSON document: as fields and as JSON.
type document struct {
	fields map[string]any // nil if empty
	json   []byte
	strict []error // what only strict decoding rejects
}

func toDocument(data []byte) (document, error) {
	var doc document
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		// Duplicate keys are what strict reading rejects beyond plain.
		doc.strict = append(doc.strict, err)
		if asJSON, err = yaml.YAMLToJSON(data); err != nil {
			return doc, err
		}
	}
	doc.json = asJSON
	value, err := decodeAny(asJSON)
	if err != nil {
		return doc, err
	}
	switch value := value.(type) {
	case nil:
		return doc, nil
	case map[string]any:
		doc.fields = value
		return doc, nil
	}
	return doc, errors.New("is not a mapping of fields: expected apiVersion, kind and settings")
}

// storeIn checks the document by its kind and keeps its fields. dir is where
// relative paths start.
func (d *document) storeIn(out *layer, dir string) error {
	apiVersion, _ := d.fields["apiVersion"].(string)
	kind, _ := d.fields["kind"].(string)
	var want string
	switch kind {
	case kubeletKind:
		want = kubeletAPIVersion
	case tinyletKind:
		want = tinyletAPIVersion
	default:
		return fmt.Errorf("kind %q is unknown: expected %s or %s", kind, kubeletKind, tinyletKind)
	}
	if apiVersion != want {
		return fmt.Errorf("apiVersion %q of %s is unknown: expected %s", apiVersion, kind, want)
	}
	if kind == kubeletKind {
		return d.storeKubelet(out, dir)
	}
	return d.storeTinylet(out)
}

// storeKubelet tolerates what is unknown, with a warning, as the kubelet
// does (pkg/kubelet/kubeletconfig/util/codec/codec.go).
func (d *document) storeKubelet(out *layer, dir string) error {
	if out.kubelet != nil {
		return fmt.Errorf("is a second %s: a file may have one", kubeletKind)
	}
	unknown, err := kjson.UnmarshalStrict(d.json, &kubelet.KubeletConfiguration{})
	if err != nil {
		return nameField(d.fields, &kubelet.KubeletConfiguration{}, err)
	}
	if len(d.strict) == 0 { // duplicates are in both lists
		d.strict = unknown
	}
	makeAbsolute(d.fields, dir)
	out.kubelet = d.fields
	return nil
}

func (d *document) storeTinylet(out *layer) error {
	if out.tinylet != nil {
		return fmt.Errorf("is a second %s: a file may have one", tinyletKind)
	}
	unknown, err := kjson.UnmarshalStrict(d.json, &TinyletConfiguration{})
	if err != nil {
		return nameField(d.fields, &TinyletConfiguration{}, err)
	}
	if err := errors.Join(append(d.strict, unknown...)...); err != nil {
		return fmt.Errorf("%s: %w", tinyletKind, err)
	}
	out.tinylet = d.fields
	return nil
}

// nameField adds the field to a decoding error, since some (durations,
// quantities) do not tell it. into is scratch of the document's type.
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

// makeAbsolute lets relative paths start at dir.
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

// decodeAny reads JSON without losing digits of numbers.
func decodeAny(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		return nil, err
	}
	return value, nil
}

// sorted ranges over a map in the order of its keys.
func sorted[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if !yield(name, m[name]) {
				return
			}
		}
	}
}
