package criconfig

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// Hash returns the annotation io.kubernetes.container.hash. A container whose
// hash differs from that of its spec was started from another spec and is
// restarted. Only name and image count, since nothing else may change in a
// running pod. It equals HashContainer in pkg/kubelet/container/helpers.go:
// FNV-1a over what spew's %#v makes of the JSON's bytes, in lower-case hex
// without leading zeros.
func Hash(c *v1.Container) string {
	picked, err := json.Marshal(struct {
		Image string `json:"image"`
		Name  string `json:"name"`
	}{c.Image, c.Name})
	if err != nil { // two strings always encode
		panic(err)
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "([]uint8)%v", picked)
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}
