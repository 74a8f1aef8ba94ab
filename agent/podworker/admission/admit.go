// Package admission decides whether the node admits a pod. It has a table with
// a rule for every field of a pod's spec, so that no field is ignored silently:
// Unsupported lists the fields that are not supported, and those of an API newer
// than the table. Fit implements the kubelet's checks of a pod against the node
// and its other pods. The package is pure.
package admission

import (
	"fmt"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Unsupported lists the fields of the pod that are not supported, in the order
// of the spec. A field that is unset, empty or at its default passes. The
// config source validates the pod; Unsupported checks again only that its
// namespace, name and UID cannot lead out of a directory.
func Unsupported(p *v1.Pod) field.ErrorList {
	return append(validateNames(p), validateFields(reflect.ValueOf(p.Spec), field.NewPath("spec"))...)
}

// validateNames checks the namespace, name and UID, which become names of directories
// and cgroups.
func validateNames(p *v1.Pod) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("metadata")
	for _, id := range []struct{ name, value string }{{"namespace", p.Namespace}, {"name", p.Name}, {"uid", string(p.UID)}} {
		if strings.ContainsAny(id.value, "/\x00") || id.value == "." || id.value == ".." || len(id.value) > maxName {
			errs = append(errs, field.Invalid(path.Child(id.name), id.value, "not a valid directory name"))
		}
	}
	return errs
}

// maxName is the maximum length in bytes. It leaves room for what directory
// names add, below the 255 bytes of Linux file systems.
const maxName = 245

// validateFields applies the rules of the table to a struct's fields.
func validateFields(v reflect.Value, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	rules := rulesOf(v.Type())
	for i := range v.NumField() {
		if value := v.Field(i); isSet(value) {
			name, at := nameAndPath(v.Type().Field(i), path)
			r, ok := rules[name]
			if !ok {
				r = forbid("unknown to this version")
			}
			errs = append(errs, r.apply(value, at)...)
		}
	}
	return errs
}

// nameAndPath returns a field's JSON name and path. For an inlined struct it returns
// the Go name and the parent's path.
func nameAndPath(f reflect.StructField, parent *field.Path) (string, *field.Path) {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "" {
		return f.Name, parent
	}
	return name, parent.Child(name)
}

// isSet reports whether a field is set. An empty list or map is not set.
func isSet(v reflect.Value) bool {
	if k := v.Kind(); k == reflect.Slice || k == reflect.Map {
		return v.Len() > 0
	}
	return !v.IsZero()
}

// rule validates a field that is set: check, if any, validates the value, and
// walk then applies the table's rules for the fields below.
type rule struct {
	check func(v reflect.Value, path *field.Path) field.ErrorList
	walk  bool
	// mark is the reason why a field is accepted although no package of the
	// agent acts on it.
	mark string
}

func (r rule) apply(v reflect.Value, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.check != nil {
		errs = r.check(v, path)
	}
	v = reflect.Indirect(v)
	switch {
	case !r.walk:
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			errs = append(errs, validateFields(v.Index(i), path.Index(i))...)
		}
	default:
		errs = append(errs, validateFields(v, path)...)
	}
	return errs
}

var (
	// allow accepts every value.
	allow = rule{}
	// walk applies the rules for the fields below: those of a struct, a
	// pointer to one, or a list of them.
	walk = rule{walk: true}
)

// forbid rejects every value.
func forbid(why string) rule {
	return rule{check: func(_ reflect.Value, path *field.Path) field.ErrorList {
		return field.ErrorList{field.Forbidden(path, why)}
	}}
}

// forbidEach rejects each field that is set of a struct or a pointer to one,
// and accepts a struct without such a field. It rejects every value of another
// kind.
func forbidEach(why string) rule {
	return rule{check: func(v reflect.Value, path *field.Path) field.ErrorList {
		var errs field.ErrorList
		if v = reflect.Indirect(v); v.Kind() != reflect.Struct {
			return append(errs, field.Forbidden(path, why))
		}
		for i := range v.NumField() {
			if isSet(v.Field(i)) {
				_, at := nameAndPath(v.Type().Field(i), path)
				errs = append(errs, field.Forbidden(at, why))
			}
		}
		return errs
	}}
}

// oneOf accepts the given values of a string, a bool or a pointer to one.
func oneOf[T comparable](values ...T) rule {
	return rule{check: func(v reflect.Value, path *field.Path) field.ErrorList {
		got := reflect.Indirect(v)
		var names []string
		for _, value := range values {
			if got.Interface() == any(value) {
				return nil
			}
			names = append(names, fmt.Sprint(value))
		}
		return field.ErrorList{field.NotSupported(path, fmt.Sprint(got.Interface()), names)}
	}}
}

// matching accepts the strings for which ok returns true.
func matching(ok func(string) bool) rule {
	return rule{check: func(v reflect.Value, path *field.Path) field.ErrorList {
		if ok(v.String()) {
			return nil
		}
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("%q is not supported on this node", v.String()))}
	}}
}
