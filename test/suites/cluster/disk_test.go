//go:build cluster

package cluster

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/test/harness/board"
	"github.com/tinylet/tinylet/test/harness/board/imagetar"
)

const (
	quietPod = "quiet"
	// bigImage is used by nobody, and takes bigMiB of the disk and as much
	// again where it is unpacked.
	bigImage = "localhost/big:1"
	bigMiB   = 30
)

// TestDiskPressure fills a board's disk by an image, by a container's log and
// by an emptyDir volume: what nobody needs goes first, and then who fills it.
func TestDiskPressure(t *testing.T) {
	l := newLab(t)
	l.sh(`printf 'evictionPressureTransitionPeriod: 5s\ncontainerLogMaxSize: 1Gi\n' >> /etc/tinylet/config.yaml && cp /etc/tinylet/config.yaml /etc/tinylet/config.usual && /etc/init.d/S50tinylet restart`)
	l.until("the node is Ready", l.nodeReady)
	l.c.Apply(t, onNode(quietPod, "", "sleep 100000"))
	l.until("a pod runs", func() string { return l.running("app="+quietPod, 1) })
	before := restarts(l.pods("app=" + quietPod))
	for _, step := range []struct {
		name string
		test func(lab)
	}{
		{"an image that nobody uses", lab.fullByImage},
		{"a container's log", lab.fullByLog},
		{"an emptyDir volume", lab.fullByEmptyDir},
		{"an emptyDir volume over its limit", lab.overSizeLimit},
		{"a container over its limit", lab.overStorageLimit},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.test(l.with(t)) }) {
			break
		}
		if now := restarts(l.pods("app=" + quietPod)); fmt.Sprint(now) != fmt.Sprint(before) {
			t.Fatalf("%s: the quiet pod was %v and is %v", step.name, before, now)
		}
	}
}

// threshold restarts the agent with a threshold of the node's disk that is so
// many MiB above what is left now, or below.
func (l lab) threshold(above int) {
	l.Helper()
	text := strings.TrimSpace(l.sh("sync; df -m /var/lib/kubelet | tail -n 1 | awk '{print $(NF-2)}'"))
	left, err := strconv.Atoi(text)
	if err != nil {
		l.Fatalf("df tells %q", text)
	}
	l.Logf("%d MiB are left of the disk, the threshold is %d MiB", left, left+above)
	l.sh(fmt.Sprintf(`cp /etc/tinylet/config.usual /etc/tinylet/config.yaml
printf 'evictionHard: {nodefs.available: %dMi}\n' >> /etc/tinylet/config.yaml
: > /var/log/tinylet.log
/etc/init.d/S50tinylet restart`, left+above))
}

// usual takes the threshold away, and waits until the pressure is over.
func (l lab) usual() {
	l.Helper()
	l.sh("cp /etc/tinylet/config.usual /etc/tinylet/config.yaml; /etc/init.d/S50tinylet restart")
	l.until("the node is Ready", l.nodeReady)
	l.until("the disk has room again", func() string { return l.conditionIs(corev1.NodeDiskPressure, corev1.ConditionFalse) })
}

// goarch is the board's architecture as images name it.
func goarch() string {
	if arch() == board.ARMv7 {
		return "arm"
	}
	return "arm64"
}

// fullByImage has an image go, and no pod.
func (l lab) fullByImage() {
	data := make([]byte, bigMiB<<20)
	_, _ = rand.Read(data) // nothing compresses it
	var archive bytes.Buffer
	if err := imagetar.Write(&archive, imagetar.Image{Name: bigImage, GOARCH: goarch(), Files: []imagetar.File{{Name: "big", Mode: 0o644, Data: data}}}); err != nil {
		l.Fatal(err)
	}
	// Beside the disk, so that only what containerd makes of it takes room.
	l.sh("mkdir -p /run/images && mount -t tmpfs tmpfs /run/images")
	if err := l.vm.Put(l.Context(), "/run/images/big.tar", &archive, 0o644); err != nil {
		l.Fatal(err)
	}
	l.sh("ctr -n k8s.io images import /run/images/big.tar && umount /run/images")
	l.threshold(bigMiB / 2)
	l.until("the image is removed", func() string {
		if names := l.sh("ctr -n k8s.io images ls -q"); strings.Contains(names, bigImage) {
			return names
		}
		return ""
	})
	var log string
	l.until("the agent has seen that this was enough", func() string {
		if log = l.sh("cat /var/log/tinylet.log"); !strings.Contains(log, "reclaimed enough node-level resources") {
			return "its log does not say so"
		}
		return ""
	})
	if strings.Contains(log, "evicted pod") {
		l.Errorf("the agent's log:\n%s", log)
	}
	l.usual()
}

// fullByLog has a pod write a log that is too long for the disk.
func (l lab) fullByLog() {
	l.threshold(-40)
	l.c.Apply(l.T, onNode("chatty", "", "head -c 80m /dev/zero | tr '\\0' x | fold -w 4000; sleep 100000"))
	l.evicted("chatty", "The node was low on resource: ephemeral-storage. ", true)
	l.until("what it left is taken away", func() string {
		if left := l.sh("du -sm /var/log/pods | cut -f 1"); len(strings.TrimSpace(left)) > 1 {
			return left + " MiB of logs"
		}
		return ""
	})
	l.inOrder("chatty")
	l.over("chatty")
}

// fullByEmptyDir has a pod write into a volume without a limit.
func (l lab) fullByEmptyDir() {
	l.threshold(-40)
	l.c.Apply(l.T, withVolume("hoarder", "{}", "", 80))
	l.evicted("hoarder", "The node was low on resource: ephemeral-storage. ", true)
	l.inOrder("hoarder")
	l.over("hoarder")
}

func (l lab) overSizeLimit() {
	l.c.Apply(l.T, withVolume("greedy", "{sizeLimit: 5Mi}", "", 10))
	l.evicted("greedy", `Usage of EmptyDir volume "data" exceeds the limit "5Mi". `, false)
	l.c.Must(l.T, "delete", "pod", "greedy", "--wait=true", "--timeout=4m")
}

func (l lab) overStorageLimit() {
	l.c.Apply(l.T, withVolume("fat", "{}", "limits: {ephemeral-storage: 5Mi}", 10))
	l.evicted("fat", "Pod ephemeral local storage usage exceeds the total limit of containers 5Mi. ", false)
	l.c.Must(l.T, "delete", "pod", "fat", "--wait=true", "--timeout=4m")
}

// withVolume is a pod that writes so many MiB into a volume.
func withVolume(pod, emptyDir, resources string, mib int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: %s
  restartPolicy: Never
  terminationGracePeriodSeconds: 20
  volumes: [{name: data, emptyDir: %s}]
  containers:
  - {name: main, image: %q, command: [sh, -c, "head -c %dm /dev/urandom > /data/file; sleep 100000"], resources: {%s}, volumeMounts: [{name: data, mountPath: /data}]}
`, pod, name, emptyDir, board.BusyboxImage, mib, resources)
}

// evicted waits until a pod was, and sees what it was told.
func (l lab) evicted(pod, message string, disruption bool) {
	l.Helper()
	l.until(pod+" is evicted", func() string {
		var p corev1.Pod
		l.c.Get(l.T, &p, "pod", pod)
		if p.Status.Phase != corev1.PodFailed {
			return string(p.Status.Phase) + " " + waiting(&p)
		}
		if p.Status.Reason != "Evicted" || !strings.HasPrefix(p.Status.Message, message) || disrupted(&p) != disruption {
			l.Errorf("%s: %s %q, %+v", pod, p.Status.Reason, p.Status.Message, p.Status.Conditions)
		}
		return ""
	})
}

// inOrder sees that what the node could spare was looked for before the pod had
// to go, and that no other pod went.
func (l lab) inOrder(pod string) {
	l.Helper()
	log := l.sh("cat /var/log/tinylet.log")
	short, went := strings.Index(log, `msg="eviction threshold met"`), strings.Index(log, `msg="evicted pod"`)
	if short < 0 || went < short || strings.Count(log, `msg="evicted pod"`) != 1 || !strings.Contains(log[went:], pod) {
		l.Errorf("the agent's log:\n%s", log)
	}
	if events := l.c.Must(l.T, "get", "events", "--field-selector=reason=EvictionThresholdMet", "--output=jsonpath={.items[*].message}"); !strings.Contains(events, "Attempting to reclaim ephemeral-storage") {
		l.Errorf("events of the node: %q", events)
	}
}

// over deletes the pod, and takes the threshold away.
func (l lab) over(pod string) {
	l.Helper()
	l.c.Must(l.T, "delete", "pod", pod, "--wait=true", "--timeout=4m")
	l.usual()
}
