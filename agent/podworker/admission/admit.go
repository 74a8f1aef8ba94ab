// Package admission decides whether this node takes a pod. It owns a table with
// a rule for every field of a pod's spec, so that none runs wrong in silence:
// Unsupported names the fields that cannot be honoured, and those of a newer
// API than the table. It owns the kubelet's checks of a pod against the node
// and its other pods, too: Fit. It is pure.
package admission

import (
	"fmt"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Unsupported lists what the pod asks for and cannot have, in the order of
// the spec. A field that is unset, empty or at its default passes. Whether
// the pod is valid is the source's to say; only what would lead out of a
// directory by its name is refused here again.
func Unsupported(p *v1.Pod) field.ErrorList {
	return append(identity(p), visit(reflect.ValueOf(p.Spec), field.NewPath("spec"))...)
}

// identity becomes the names of directories and cgroups.
func identity(p *v1.Pod) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("metadata")
	for _, id := range []struct{ name, value string }{{"namespace", p.Namespace}, {"name", p.Name}, {"uid", string(p.UID)}} {
		if strings.ContainsAny(id.value, "/\x00") || id.value == "." || id.value == ".." || len(id.value) > maxName {
			errs = append(errs, field.Invalid(path.Child(id.name), id.value, "it cannot be the name of a directory"))
		}
	}
	return errs
}

// maxName leaves room for what directory names add, below the 255 bytes of
// Linux file systems.
const maxName = 245

// visit applies the rules of the table to a struct's fields.
func visit(v reflect.Value, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	rules := rulesOf(v.Type())
	for i := range v.NumField() {
		if value := v.Field(i); set(value) {
			name, at := child(v.Type().Field(i), path)
			r, ok := rules[name]
			if !ok {
				r = refuse("this version does not know the field")
			}
			errs = append(errs, r.apply(value, at)...)
		}
	}
	return errs
}

// child is the JSON name of a field and its path; an inlined struct has its
// Go name and its parent's path.
func child(f reflect.StructField, parent *field.Path) (string, *field.Path) {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "" {
		return f.Name, parent
	}
	return name, parent.Child(name)
}

// set says whether a field says anything: an empty list does not.
func set(v reflect.Value) bool {
	if k := v.Kind(); k == reflect.Slice || k == reflect.Map {
		return v.Len() > 0
	}
	return !v.IsZero()
}

// rule judges a field that is set: check where there is one, and then, with
// walk, the table's rules for the fields below.
type rule struct {
	check func(v reflect.Value, path *field.Path) field.ErrorList
	walk  bool
	// mark says why a field is taken that nothing here acts on.
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
			errs = append(errs, visit(v.Index(i), path.Index(i))...)
		}
	default:
		errs = append(errs, visit(v, path)...)
	}
	return errs
}

var (
	// allow takes whatever is there.
	allow = rule{}
	// walk leaves it to the rules for the fields below: those of a struct, a
	// pointer to one, or a list of them.
	walk = rule{walk: true}
)

// refuse takes nothing.
func refuse(why string) rule {
	return rule{check: func(_ reflect.Value, path *field.Path) field.ErrorList {
		return field.ErrorList{field.Forbidden(path, why)}
	}}
}

// refuseEach takes a struct, or a pointer to one, that says nothing, and
// names the fields that do; of all else it takes nothing.
func refuseEach(why string) rule {
	return rule{check: func(v reflect.Value, path *field.Path) field.ErrorList {
		var errs field.ErrorList
		if v = reflect.Indirect(v); v.Kind() != reflect.Struct {
			return append(errs, field.Forbidden(path, why))
		}
		for i := range v.NumField() {
			if set(v.Field(i)) {
				_, at := child(v.Type().Field(i), path)
				errs = append(errs, field.Forbidden(at, why))
			}
		}
		return errs
	}}
}

// only takes the named values of a string, a bool or a pointer to one.
func only[T comparable](values ...T) rule {
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

// where takes the strings for which ok holds.
func where(ok func(string) bool) rule {
	return rule{check: func(v reflect.Value, path *field.Path) field.ErrorList {
		if ok(v.String()) {
			return nil
		}
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("%q is not supported on this node", v.String()))}
	}}
}
