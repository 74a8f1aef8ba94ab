package config

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

// assign sets a field from the text of a flag. As in the kubelet, the first text of a
// flag replaces a list or a map, and further texts add to it. Each text replaces the
// taints. Feature gates are only added: those of file and flag are merged.
func assign(dst reflect.Value, text string, form form, first bool) error {
	switch _, gates := dst.Interface().(map[string]bool); {
	case dst.Kind() == reflect.Map && (dst.IsNil() || first && !gates):
		dst.Set(reflect.MakeMap(dst.Type()))
	case dst.Kind() == reflect.Slice && first:
		dst.Set(reflect.MakeSlice(dst.Type(), 0, 0))
	}
	switch p := dst.Addr().Interface().(type) {
	case *metav1.Duration:
		return assignDuration(&p.Duration, text)
	case *kubelet.TimeOrMetaDuration:
		return assignDuration(&p.Duration.Duration, text)
	case *kubelet.VModuleConfiguration:
		return p.Add(text)
	case *resource.QuantityValue:
		return p.Set(text)
	case *[]string:
		return assignList(p, text)
	case *map[string]string:
		return assignPairs(*p, text, form)
	case *map[string]bool:
		return assignBools(*p, text)
	case *map[string][]string:
		return assignHeaders(*p, text)
	case *[]v1.Taint:
		return assignTaints(p, text)
	case *[]kubelet.MemoryReservation:
		return assignMemory(p, text)
	}
	if dst.Kind() == reflect.Pointer {
		fresh := reflect.New(dst.Type().Elem())
		if err := assign(fresh.Elem(), text, form, first); err != nil {
			return err
		}
		dst.Set(fresh)
		return nil
	}
	return assignScalar(dst, text)
}

func assignScalar(dst reflect.Value, text string) error {
	switch {
	case dst.Kind() == reflect.String:
		dst.SetString(text)
	case dst.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("expected true or false")
		}
		dst.SetBool(b)
	case dst.CanInt():
		n, err := strconv.ParseInt(text, 0, dst.Type().Bits())
		if err != nil {
			return fmt.Errorf("expected a whole number of %d bits", dst.Type().Bits())
		}
		dst.SetInt(n)
	case dst.CanUint(): // log verbosity, which klog keeps in 31 bits
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return errors.New("expected a whole number from 0")
		}
		dst.SetUint(n)
	default:
		return fmt.Errorf("a flag cannot set a %s", dst.Type())
	}
	return nil
}

func assignDuration(dst *time.Duration, text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("expected a duration such as 10s or 1h30m")
	}
	*dst = d
	return nil
}

func assignList(dst *[]string, text string) error {
	items, err := csv.NewReader(strings.NewReader(text)).Read()
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: it is empty
		return fmt.Errorf("expected a comma-separated list: %w", err)
	}
	*dst = append(*dst, items...)
	return nil
}

// eachPair is cutPair for each part of a comma-separated list.
func eachPair(text, sep string, set func(key, value string) error) error {
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		if err := cutPair(part, sep, set); err != nil {
			return err
		}
	}
	return nil
}

// cutPair splits text at sep, and passes its parts to set.
func cutPair(text, sep string, set func(key, value string) error) error {
	key, value, ok := strings.Cut(text, sep)
	if !ok {
		return fmt.Errorf("%q: expected key%svalue", text, sep)
	}
	return set(strings.TrimSpace(key), strings.TrimSpace(value))
}

func assignPairs(dst map[string]string, text string, form form) error {
	set := func(key, value string) error {
		dst[key] = value
		return nil
	}
	switch form {
	case onePair:
		return cutPair(text, "=", set)
	case lessThan:
		return eachPair(text, "<", set)
	default:
		return eachPair(text, "=", set)
	}
}

func assignBools(dst map[string]bool, text string) error {
	return eachPair(text, "=", func(key, value string) error {
		b, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%q: expected true or false", key+"="+value)
		}
		dst[key] = b
		return nil
	})
}

func assignHeaders(dst map[string][]string, text string) error {
	return eachPair(text, ":", func(key, value string) error {
		dst[key] = append(dst[key], value)
		return nil
	})
}

func assignTaints(dst *[]v1.Taint, text string) error {
	var taints []v1.Taint
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		pair, effect, ok := strings.Cut(part, ":")
		if !ok {
			return fmt.Errorf("taint %q: expected key=value:effect", part)
		}
		key, value, _ := strings.Cut(pair, "=")
		taints = append(taints, v1.Taint{Key: key, Value: value, Effect: v1.TaintEffect(effect)})
	}
	*dst = taints
	return nil
}

func assignMemory(dst *[]kubelet.MemoryReservation, text string) error {
	for part := range strings.SplitSeq(text, ";") {
		if part == "" {
			continue
		}
		node, limits, _ := strings.Cut(part, ":")
		number, err := strconv.ParseInt(node, 10, 32)
		if err != nil {
			return fmt.Errorf("%q: expected numa:type=quantity", part)
		}
		reservation := kubelet.MemoryReservation{NumaNode: int32(number), Limits: v1.ResourceList{}}
		err = eachPair(limits, "=", func(name, text string) error {
			q, err := resource.ParseQuantity(text)
			if err != nil {
				return fmt.Errorf("quantity %q: %w", text, err)
			}
			reservation.Limits[v1.ResourceName(name)] = q
			return nil
		})
		if err != nil {
			return err
		}
		*dst = append(*dst, reservation)
	}
	return nil
}
