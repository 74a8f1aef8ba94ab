package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

// duration stands for the type duration in ignoredFlags.
const duration = time.Duration(0)

// fieldValue is the pflag.Value of a boundFlag. It checks each text by assigning it
// to scratch, and stores it, to be applied after the files are read.
type fieldValue struct {
	flag    *boundFlag
	scratch reflect.Value
	texts   []string // in the order given
}

// Set checks and stores a text. pflag calls it each time the flag is given.
func (f *fieldValue) Set(text string) error {
	if err := assign(f.scratch, text, f.flag.form, len(f.texts) == 0); err != nil {
		return err
	}
	f.texts = append(f.texts, text)
	return nil
}

// String returns the given texts. VarPF calls it before parsing, for the default,
// which addBound then replaces.
func (f *fieldValue) String() string { return strings.Join(f.texts, ",") }

// Type returns the name of the value's type in the help.
func (f *fieldValue) Type() string {
	if !f.scratch.IsValid() {
		return ""
	}
	switch f.scratch.Interface().(type) {
	case metav1.Duration, *metav1.Duration, kubelet.TimeOrMetaDuration:
		return "duration"
	case map[string]string:
		if f.flag.form == lessThan {
			return "signal<quantity,..."
		}
		return "key=value,..."
	case map[string]bool:
		return "key=bool,..."
	case map[string][]string:
		return "name:value,..."
	case []v1.Taint:
		return "key=value:effect,..."
	case []kubelet.MemoryReservation:
		return "numa:type=quantity,...;..."
	case kubelet.VModuleConfiguration:
		return "pattern=N,..."
	case resource.QuantityValue:
		return "quantity"
	}
	t := f.scratch.Type()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := reflect.Zero(t); {
	case v.Kind() == reflect.Bool:
		return "bool"
	case v.Kind() == reflect.Slice:
		return "strings"
	case v.CanInt(), v.CanUint():
		return "int"
	}
	return "string"
}

func (f *fieldValue) apply(kc *kubelet.KubeletConfiguration) error {
	dst := fieldByPath(reflect.ValueOf(kc).Elem(), f.flag.field)
	for i, text := range f.texts {
		if err := assign(dst, text, f.flag.form, i == 0); err != nil {
			return fmt.Errorf("flag --%s: %w", f.flag.name, err)
		}
	}
	return nil
}

// fieldByPath returns the field with a path of names in JSON tags, or the zero
// Value if there is none.
func fieldByPath(v reflect.Value, path string) reflect.Value {
	for name := range strings.SplitSeq(path, ".") {
		v = fieldByTag(v, name)
		if !v.IsValid() {
			return v
		}
	}
	return v
}

func fieldByTag(v reflect.Value, name string) reflect.Value {
	t := v.Type()
	if t.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	for i := range t.NumField() {
		field := t.Field(i)
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if tag == name {
			return v.Field(i)
		}
		if field.Anonymous && tag == "" { // its fields are inlined
			if found := fieldByTag(v.Field(i), name); found.IsValid() {
				return found
			}
		}
	}
	return reflect.Value{}
}
