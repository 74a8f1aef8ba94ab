package preflight

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/tinylet/tinylet/agent/podworker/volume"
)

// volumes finds volumes that a kubelet has set up for pods.
func (t tree) volumes(o *Options) Volumes {
	prefix := string(t)
	if prefix == "/" {
		prefix = "" // the running system
	}
	found, err := volume.FindForeign(prefix, o.RootDir, t.path("proc/self/mountinfo"))
	if err != nil {
		return Volumes{Err: err.Error()}
	}
	staged, err := volume.FindStaged(prefix, o.RootDir, t.path("proc/self/mountinfo"))
	if err != nil {
		return Volumes{Err: err.Error()}
	}
	out := Volumes{Staged: staged}
	if len(found) == 0 {
		return out
	}
	names := t.podNames(o.LogDir)
	for i := range found {
		pod := string(found[i].Pod)
		if name := names[pod]; name != "" {
			pod = name
		}
		out.Foreign = append(out.Foreign, ForeignVolume{Pod: pod, Volume: found[i].String()})
	}
	return out
}

// podNames returns the names of pods by UID, from the names of their log folders.
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
