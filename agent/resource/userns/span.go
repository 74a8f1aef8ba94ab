package userns

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// span is a range of IDs of the node.
type span struct {
	first, length uint32
}

// namespace returns the user namespace that maps the span to the pod's IDs from 0 on.
func (s span) namespace() *runtimeapi.UserNamespace {
	ids := func() []*runtimeapi.IDMapping {
		return []*runtimeapi.IDMapping{{HostId: s.first, ContainerId: 0, Length: s.length}}
	}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids(), Gids: ids()}
}

func overlap(a, b []span) bool {
	for _, x := range a {
		for _, y := range b {
			if uint64(x.first) < uint64(y.first)+uint64(y.length) && uint64(y.first) < uint64(x.first)+uint64(x.length) {
				return true
			}
		}
	}
	return false
}

// document is the content of a pod's file (pkg/kubelet/userns: userNamespace).
type document struct {
	UIDs []mapping `json:"uidMappings"`
	GIDs []mapping `json:"gidMappings"`
}

type mapping struct {
	Host      uint32 `json:"hostId"`
	Container uint32 `json:"containerId"`
	Length    uint32 `json:"length"`
}

func encode(s span) ([]byte, error) {
	ids := []mapping{{Host: s.first, Length: s.length}}
	return json.Marshal(document{UIDs: ids, GIDs: ids})
}

// decode decodes a pod's file. Without an error it returns one span. With an error it
// returns all spans that the file may claim. perPod is the assumed length of a
// truncated mapping.
func decode(data []byte, perPod uint32) ([]span, error) {
	var doc document
	if err := json.Unmarshal(data, &doc); err != nil {
		return recoverSpans(string(data), perPod), fmt.Errorf("decode mappings: %w", err)
	}
	var spans []span
	for _, m := range append(doc.UIDs, doc.GIDs...) {
		if m.Length > 0 {
			spans = mergeSpan(spans, span{m.Host, m.Length})
		}
	}
	switch {
	case len(doc.UIDs) != 1 || len(doc.GIDs) != 1:
		return spans, errors.New("want one UID mapping and one GID mapping")
	case doc.UIDs[0] != doc.GIDs[0]:
		return spans, errors.New("UID and GID mappings differ")
	case doc.UIDs[0].Container != 0:
		return spans, errors.New("ID 0 is not mapped")
	case len(spans) != 1:
		return spans, errors.New("mapping has no IDs")
	}
	return spans, nil
}

// mergeSpan appends s, or extends the span that overlaps with it.
func mergeSpan(spans []span, s span) []span {
	for i, old := range spans {
		if !overlap([]span{old}, []span{s}) {
			continue
		}
		first := min(old.first, s.first)
		end := max(uint64(old.first)+uint64(old.length), uint64(s.first)+uint64(s.length))
		spans[i] = span{first, uint32(min(end-uint64(first), math.MaxUint32))}
		return spans
	}
	return append(spans, s)
}

// recoverSpans returns the spans of all host IDs in a truncated file.
func recoverSpans(text string, perPod uint32) []span {
	var spans []span
	for part := range strings.SplitSeq(text, `"hostId"`) {
		part = strings.TrimLeft(part, ": \t\n")
		digits := part[:len(part)-len(strings.TrimLeft(part, "0123456789"))]
		// A number at the end of the text may have lost its last digits.
		if len(digits) == len(part) {
			continue
		}
		if first, err := strconv.ParseUint(digits, 10, 32); err == nil {
			spans = mergeSpan(spans, span{uint32(first), perPod})
		}
	}
	return spans
}
