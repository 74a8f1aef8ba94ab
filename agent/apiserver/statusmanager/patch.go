package statusmanager

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/strategicpatch"
)

// Patch returns the strategic merge patch of the subresource status of the pod uid
// from before to after, nil if they do not differ. The patch contains the
// differences and the UID, which makes the API server reject it for another pod of
// the same name. Neither status is changed.
//
// Conditions merge by their type. Their order is not sent, because they are a map.
// Addresses are replaced as a whole, because their order shows which is the first.
// Lists of containers are replaced as well, because the API has no other way.
//
// testdata/strategicpatch compares Patch with k8s.io/apimachinery's strategicpatch.
// The error is that of encoding/json; statuses from an API server or from this
// agent cause none.
func Patch(uid types.UID, before, after *v1.PodStatus) ([]byte, error) {
	from, to := *before, *after
	// Equal lists need no conversion to a document.
	drop(&from.Conditions, &to.Conditions)
	drop(&from.InitContainerStatuses, &to.InitContainerStatuses)
	drop(&from.ContainerStatuses, &to.ContainerStatuses)
	drop(&from.EphemeralContainerStatuses, &to.EphemeralContainerStatuses)
	drop(&from.ResourceClaimStatuses, &to.ResourceClaimStatuses)
	drop(&from.NodeAllocatableResourceClaimStatuses, &to.NodeAllocatableResourceClaimStatuses)
	if equality.Semantic.DeepEqual(&from, &to) {
		return nil, nil
	}
	old, err := strategicpatch.Document(&from)
	if err != nil {
		return nil, fmt.Errorf("encode status of pod %s: %w", uid, err)
	}
	fresh, err := strategicpatch.Document(&to)
	if err != nil {
		return nil, fmt.Errorf("encode status of pod %s: %w", uid, err)
	}
	status := diffStatus(old, fresh)
	if len(status) == 0 {
		return nil, nil
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": status})
}

func drop[T any](a, b *[]T) {
	if equality.Semantic.DeepEqual(*a, *b) {
		*a, *b = nil, nil
	}
}

func diffStatus(before, after map[string]any) map[string]any {
	patch := make(map[string]any)
	if list, _ := strategicpatch.DiffConditions(strategicpatch.Take(before, "conditions"), strategicpatch.Take(after, "conditions"), false); len(list) > 0 {
		patch["conditions"] = list
	}
	for _, key := range []string{"hostIPs", "podIPs"} {
		if was, is := strategicpatch.Take(before, key), strategicpatch.Take(after, key); !reflect.DeepEqual(was, is) {
			patch[key] = strategicpatch.ReplaceList(is)
		}
	}
	maps.Copy(patch, strategicpatch.Diff(before, after))
	return patch
}
