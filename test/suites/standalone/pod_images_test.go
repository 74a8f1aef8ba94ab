//go:build board

package standalone

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tinylet/tinylet/cmd/tinylet/cli"
)

// imageScene is image archives, logs and events.
func imageScene() scene {
	return scene{
		name: "images and logs",
		pods: map[string]string{
			"late": latePod, "chatty": chattyPod, "again": againPod, "crash": crashPod,
		},
		checks: []check{
			{"a pod waits for an image that an archive brings", preload},
			{"a truncated archive", truncatedArchive},
			{"logs are rotated", rotation},
			{"the log of the container before", previousLog},
			{"one dead container is kept", deadContainers},
			{"events", podEvents},
		},
		after: func(n node) { n.sh("rm -f %[1]s/late.tar %[1]s/cut.tar", imagesDir) },
	}
}

// garbageScene gives the agent a configuration by which any disk is too full.
func garbageScene() scene {
	const begin = `cp /etc/tinylet/config.yaml /tmp/config.before
sed -i 's/^maxPods:.*/&\nimageGCHighThresholdPercent: 1\nimageGCLowThresholdPercent: 0\nimageMinimumGCAge: 1s/' /etc/tinylet/config.yaml
/etc/init.d/S50tinylet restart`
	return scene{
		name: "image garbage",
		pods: map[string]string{"keeper": keeperPod},
		checks: []check{
			{"images that nobody uses are removed from a full disk", func(n node) { imageGarbage(n, begin) }},
			{"a removed image is imported again for a pod", imageAgain},
		},
		after: func(n node) { n.sh("mv /tmp/config.before /etc/tinylet/config.yaml && /etc/init.d/S50tinylet restart") },
	}
}

const keeperPod = `
apiVersion: v1
kind: Pod
metadata: {name: keeper}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: busybox, command: [sleep, "100000"]}]
`

func imageGarbage(n node, begin string) {
	n.pod("keeper").status("Running")
	if names := n.imageNames(); !strings.Contains(names, programImage) || !strings.Contains(names, "busybox") {
		n.Fatalf("want both images before: %s", names)
	}
	before := n.tasks()
	n.sh("%s", begin)
	n.pod("keeper").until(programImage+" is removed", func(*cli.DescriptionDocument) string {
		if names := n.imageNames(); strings.Contains(names, programImage) {
			return names
		}
		return ""
	})
	names := n.imageNames()
	n.pod("keeper").holds("images of pods and the runtime's own stay", strings.Contains(names, "busybox") && strings.Contains(names, "pause"), names)
	now := n.tasks()
	for id, pid := range before {
		if now[id] != pid {
			n.Errorf("container %s was %s and is %q after the agent's restart", id, pid, now[id])
		}
	}
}

func imageAgain(n node) {
	n.put("wants.yaml", manifest(`
apiVersion: v1
kind: Pod
metadata: {name: wants}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: program, imagePullPolicy: IfNotPresent, command: [/program, trap]}]
`))
	n.pod("wants").status("Running")
	n.pod("wants").holds("its image is there again", strings.Contains(n.imageNames(), programImage), n.imageNames())
}

// imageNames are the names of the images that containerd has.
func (n node) imageNames() string {
	n.Helper()
	return n.sh("ctr -n k8s.io images ls -q | grep -v '^sha256:'")
}

const latePod = `
apiVersion: v1
kind: Pod
metadata: {name: late}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "localhost/late:1", imagePullPolicy: IfNotPresent}]
`

func preload(n node) {
	p := n.pod("late")
	p.status("ErrImagePull", "ImagePullBackOff")
	if err := n.vm.Put(n.ctx, path.Join(imagesDir, "late.tar"), bytes.NewReader(lateArchive(n.T)), 0o644); err != nil {
		n.Fatal(err)
	}
	p.status("Running")
}

func truncatedArchive(n node) {
	whole := lateArchive(n.T)
	if err := n.vm.Put(n.ctx, path.Join(imagesDir, "cut.tar"), bytes.NewReader(whole[:len(whole)/2]), 0o644); err != nil {
		n.Fatal(err)
	}
	for range 90 {
		if said := n.sh("tinylet events | grep cut.tar; true"); said != "" {
			n.Logf("an event tells of the truncated archive: %s", said)
			return
		}
		n.sh("sleep 1")
	}
	n.Errorf("want an event that tells of cut.tar; seen:\n%s", n.sh("tinylet events | tail -n 20"))
}

const chattyPod = `
apiVersion: v1
kind: Pod
metadata: {name: chatty}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: program, command: [/program, log, -lines, "0", -bytes, "60", -every, 30ms]}]
`

// rotation: the container writes 2 kB/s for ever; three files of about 20 KiB
// are kept, the older ones packed.
func rotation(n node) {
	p := n.pod("chatty")
	wrote := func(lines int) {
		p.until(fmt.Sprintf("it wrote %d lines", lines), func(*cli.DescriptionDocument) string {
			number, _, _ := strings.Cut(p.log("c", "--tail", "1"), " ")
			if n, err := strconv.Atoi(number); err != nil || n < lines {
				return "the last is " + number
			}
			return ""
		})
	}
	wrote(1)
	dir := n.sh("echo /var/log/pods/default_chatty-board_*/c")
	var files []string
	p.until("its log was rotated twice", func(*cli.DescriptionDocument) string {
		files = strings.Fields(n.sh("ls %s", dir))
		if len(files) < 3 {
			return strings.Join(files, " ")
		}
		return ""
	})
	wrote(1500)
	files = strings.Fields(n.sh("ls %s", dir))
	p.holds("there are at most three files", len(files) <= 3, files)
	p.same("the newest is 0.log", true, slices.Contains(files, "0.log"))
	size, err := strconv.Atoi(strings.Fields(n.sh("du -k -s %s", dir))[0])
	p.holds("they take less than 120 kB, of more than 150 kB written", err == nil && size < 120, size)
	id := find(p.status("Running"), "c").ID
	link := n.sh("readlink -f /var/log/containers/chatty-board_default_c-%s.log", id)
	p.same("the link leads to the newest", dir+"/0.log", link)
}

const againPod = `
apiVersion: v1
kind: Pod
metadata: {name: again}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: m, emptyDir: {}}]
  containers:
  - name: c
    image: busybox
    command: [sh, -c, 'echo x >> /m/lives; n=$(wc -l < /m/lives); echo life $n; [ $n -gt 1 ] && exec sleep 100000; exit 1']
    volumeMounts: [{name: m, mountPath: /m}]
`

func previousLog(n node) {
	p := n.pod("again")
	p.logged("c", "life 2")
	p.same("the log before", "life 1", p.log("c", "--previous"))
	p.same("the log now", "life 2", p.log("c"))
}

const crashPod = `
apiVersion: v1
kind: Pod
metadata: {name: crash}
spec:
  containers: [{name: c, image: program, command: [/program, exit, -say, crashed, "4"]}]
`

func deadContainers(n node) {
	p := n.pod("crash")
	d := p.until("two restarts", func(d *cli.DescriptionDocument) string {
		if d.Restarts < 2 {
			return fmt.Sprintf("%d restarts", d.Restarts)
		}
		return ""
	})
	kept := 0
	for range 60 {
		kept = len(strings.Fields(n.sh("for c in $(ctr -n k8s.io c ls -q); do ctr -n k8s.io c info $c | grep -q 'pod.uid.*%s' && echo $c; done; true", d.UID)))
		if kept <= 3 {
			break
		}
		n.sh("sleep 2")
	}
	p.holds("the sandbox, the last container and at most one before are kept", kept >= 2 && kept <= 3, kept)
	p.same("restart count", true, d.Restarts >= 2)
	p.holds("how it ended", find(d, "c").Reason == "CrashLoopBackOff" || find(d, "c").Reason == "Error", find(d, "c").Reason)
}

func podEvents(n node) {
	n.pod("again").event("Pulled", "present")
	for reason, text := range map[string]string{"Created": "", "Started": "", "BackOff": ""} {
		n.pod("crash").event(reason, text)
	}
	n.pod("late").event("Failed", "late:1")
	said := n.sh("tinylet events late")
	n.pod("late").holds("tinylet events NAME tells of that pod alone", strings.Contains(said, "default/late-board") && !strings.Contains(said, "default/crash-board"), said)
}
