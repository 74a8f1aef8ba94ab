package config

import (
	"encoding/json"
	"fmt"
	"strings"

	kjson "sigs.k8s.io/json"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

// merge applies patch to base by RFC 7386 (JSON merge patch) and returns base:
// objects are merged field by field, null removes, all else replaces, lists
// included. It creates base if that is nil.
func merge(base, patch map[string]any) map[string]any {
	if base == nil {
		base = make(map[string]any, len(patch))
	}
	for name, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(base, name)
		case map[string]any:
			old, _ := base[name].(map[string]any)
			base[name] = merge(old, value)
		default:
			base[name] = value
		}
	}
	return base
}

// mergeKubelet decodes the base, sets its defaults, and merges the drop-ins into it.
// As in the kubelet, drop-ins are merged into the defaults as well: a drop-in that
// sets one eviction threshold keeps the others. An explicit evictionHard: {} in the
// base, which means no thresholds, is kept.
func mergeKubelet(base map[string]any, dropIns []map[string]any, memory int64) (kubelet.KubeletConfiguration, error) {
	var kc kubelet.KubeletConfiguration
	if err := convert(base, &kc); err != nil {
		return kc, err
	}
	setDefaults(&kc, memory)
	if len(dropIns) == 0 {
		return kc, nil
	}
	var fields map[string]any
	if err := convert(&kc, &fields); err != nil {
		return kc, err
	}
	if len(kc.EvictionHard) == 0 {
		fields["evictionHard"] = map[string]any{} // encoding omits an empty map
	}
	for _, dropIn := range dropIns {
		fields = merge(fields, dropIn)
	}
	kc = kubelet.KubeletConfiguration{}
	if err := convert(fields, &kc); err != nil {
		return kc, err
	}
	setDefaults(&kc, memory)
	return kc, nil
}

// convert converts fields to a configuration, or back, without strict checks: parse has
// checked each document.
func convert(from, into any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return fmt.Errorf("encode merged configuration: %w", err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, into); err != nil {
		return fmt.Errorf("decode merged configuration: %w", err)
	}
	return nil
}

func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}
