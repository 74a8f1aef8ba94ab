package preflight

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tinylet/tinylet/agent/podworker/volume"
)

// maxNamed bounds the number of volumes in a finding.
const maxNamed = 20

// checkKubelet checks for another agent. tinylet does not start beside a kubelet.
func checkKubelet(f *Facts) []Finding {
	if !f.Kubelet {
		return nil
	}
	return []Finding{fail("kubelet", "a kubelet is running on this node; it and tinylet would remove each other's pods, so tinylet does not start",
		"stop the kubelet, and keep it from starting again (its unit, or its package); its pods keep running, and tinylet takes them over")}
}

// checkVolumes checks for volumes that tinylet neither mounts nor unmounts.
func checkVolumes(f *Facts) []Finding {
	const id = "foreign-volumes"
	if f.Volumes.Err != "" {
		return []Finding{warn(id, "cannot determine whether a kubelet has left volumes: "+f.Volumes.Err, "mount /proc, and run tinylet check as root")}
	}
	texts := f.Volumes.Found
	if len(texts) == 0 {
		return nil
	}
	if more := len(texts) - maxNamed; more > 0 {
		texts = append(texts[:maxNamed:maxNamed], fmt.Sprintf("and %d more", more))
	}
	return []Finding{fail(id, "a kubelet has set up volumes that tinylet cannot unmount: "+strings.Join(texts, ", "),
		"drain the node and stop the kubelet first, so that it removes these volumes; unmount and delete by hand what is left")}
}

// volumes finds volumes that a kubelet has set up for pods.
func (t tree) volumes(o *Options) Volumes {
	prefix := strings.TrimSuffix(string(t), "/")
	found, err := volume.FindForeign(prefix, o.RootDir, t.path("proc/self/mountinfo"))
	if err != nil {
		return Volumes{Err: err.Error()}
	}
	staged, err := volume.FindStaged(prefix, o.RootDir, t.path("proc/self/mountinfo"))
	if err != nil {
		return Volumes{Err: err.Error()}
	}
	var out Volumes
	names := t.podNames(o.LogDir)
	for i := range found {
		uid := string(found[i].Pod)
		out.Found = append(out.Found, found[i].String()+" of pod "+cmp.Or(names[uid], uid))
	}
	out.Found = append(out.Found, staged...)
	return out
}

// podNames returns the names of pods by UID, from the names of their log directories.
func (t tree) podNames(logs string) map[string]string {
	entries, err := os.ReadDir(filepath.Join(string(t), logs))
	if err != nil {
		return nil
	}
	names := make(map[string]string, len(entries))
	for _, e := range entries {
		// Neither a namespace nor a name has an underscore.
		if parts := strings.Split(e.Name(), "_"); len(parts) == 3 {
			names[parts[2]] = parts[0] + "/" + parts[1]
		}
	}
	return names
}
