//go:build board

package standalone

import (
	"strings"
	"time"

	"github.com/tinylet/tinylet/cmd/tinylet/cli"
)

// volumeScene is every kind of volume, as containers see it.
func volumeScene() scene {
	return scene{
		name: "volumes",
		before: func(n node) {
			n.sh(`rm -rf %[1]s && mkdir -p %[1]s/nested/inner %[1]s/shared %[1]s/pv-host %[1]s/pv-local
echo host > %[1]s/pv-host/text
echo local > %[1]s/pv-local/text
mount -t tmpfs inner %[1]s/nested/inner`, sharedDir)
			n.object("volumes.yaml", volumeObjects)
			n.object("changing.yaml", changing("blue"))
		},
		pods: map[string]string{
			"files": filesPod, "mounts": mountsPod, "paths": pathsPod, "claims": claimsPod,
			"image": imageVolumePod, "watch": watchPod, "spread": propagationPod,
		},
		checks: []check{
			{"config volumes: content, modes, links", configVolumes},
			{"downward API and projected", downwardAndProjected},
			{"emptyDir in memory and on disk, read-only mounts", mountOptions},
			{"hostPath types, subPath and subPathExpr", hostAndSubPaths},
			{"claims on hostPath and local volumes", claims},
			{"image volume", imageVolume},
			{"updates by the ..data link", updates},
			{"mount propagation", propagation},
		},
		after: func(n node) {
			n.sh("umount %[1]s/nested/inner; umount %[1]s/shared/given 2>/dev/null; true", sharedDir)
		},
	}
}

const volumeObjects = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-host}
spec:
  capacity: {storage: 1Mi}
  accessModes: [ReadWriteOnce]
  hostPath: {path: /var/tmp/e2e/pv-host}
  claimRef: {name: claim-host, namespace: default}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim-host, namespace: default}
spec: {volumeName: pv-host, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-local}
spec:
  capacity: {storage: 1Mi}
  accessModes: [ReadWriteOnce]
  local: {path: /var/tmp/e2e/pv-local}
  claimRef: {name: claim-local, namespace: default}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [board]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim-local, namespace: default}
spec: {volumeName: pv-local, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
`

func changing(color string) string {
	return `{apiVersion: v1, kind: ConfigMap, metadata: {name: changing}, data: {color: ` + color + `}}
---
{apiVersion: v1, kind: Secret, metadata: {name: changing}, stringData: {color: ` + color + `}}
`
}

const filesPod = `
apiVersion: v1
kind: Pod
metadata: {name: files, labels: {app: shop}, annotations: {note: hello}}
spec:
  restartPolicy: Never
  volumes:
  - {name: all, configMap: {name: settings}}
  - {name: one, configMap: {name: settings, defaultMode: 0440, items: [{key: color, path: a/b, mode: 0400}, {key: shape, path: c}]}}
  - {name: absent, configMap: {name: none, optional: true}}
  - {name: secret, secret: {secretName: keys}}
  - name: down
    downwardAPI:
      items:
      - {path: name, fieldRef: {fieldPath: metadata.name}}
      - {path: labels, fieldRef: {fieldPath: metadata.labels}}
      - {path: note, fieldRef: {fieldPath: "metadata.annotations['note']"}}
      - {path: cpu, resourceFieldRef: {containerName: c, resource: limits.cpu, divisor: 1m}}
  - name: mixed
    projected:
      defaultMode: 0444
      sources:
      - configMap: {name: settings, items: [{key: color, path: config/color}]}
      - secret: {name: keys, items: [{key: password, path: secret/password, mode: 0400}]}
      - downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}
  containers:
  - name: c
    image: program
    command: [/program, file, stat, /all, /all/color, /all/..data, /one/a/b, /one/a, /one/c, /absent, /secret/password, /down/name, /down/labels, /down/note, /down/cpu, /mixed/config/color, /mixed/secret/password, /mixed/name]
    resources: {limits: {cpu: 250m}}
    volumeMounts:
    - {name: all, mountPath: /all}
    - {name: one, mountPath: /one}
    - {name: absent, mountPath: /absent}
    - {name: secret, mountPath: /secret}
    - {name: down, mountPath: /down}
    - {name: mixed, mountPath: /mixed}
  - {name: report, image: program, command: [/program, report], volumeMounts: [{name: secret, mountPath: /secret}, {name: all, mountPath: /all}]}
  - {name: write, image: program, command: [/program, file, write, /all/new, text], volumeMounts: [{name: all, mountPath: /all}]}
`

func configVolumes(n node) {
	p := n.pod("files")
	f := p.stats("c")
	got := map[string]string{}
	for path, s := range f {
		got[path] = strings.TrimSpace(s.Type + " " + s.Content + s.Error)
	}
	p.same("a whole ConfigMap", "L blue", got["/all/color"])
	p.same("its file is a link", "..data/color", f["/all/color"].Link)
	p.holds("..data is a link", f["/all/..data"].Type == "L" && strings.HasPrefix(f["/all/..data"].Link, ".."), f["/all/..data"])
	p.same("an item in a folder", "- blue", got["/one/a/b"])
	p.same("its first folder is a link", "..data/a", f["/one/a"].Link)
	p.same("an item's own mode", "0400", f["/one/a/b"].Mode)
	p.same("the volume's mode", "L round", got["/one/c"])
	p.same("an absent optional ConfigMap is an empty folder", "d", got["/absent"])
	p.same("a secret", "L s3cret", got["/secret/password"])
	r := p.report("report")
	p.same("a secret is kept in memory", "tmpfs", r.At("/secret").Type)
	p.same("config volumes are read-only", [2]bool{true, true}, [2]bool{r.At("/secret").Has("ro"), r.At("/all").Has("ro")})
	p.logged("write", "read-only file system")
}

func downwardAndProjected(n node) {
	p := n.pod("files")
	f := p.stats("c")
	got := map[string]string{}
	for _, path := range []string{"/down/name", "/down/labels", "/down/note", "/down/cpu", "/mixed/config/color", "/mixed/secret/password", "/mixed/name"} {
		got[path] = f[path].Content + f[path].Error
	}
	p.same("content", map[string]string{
		"/down/name": "files-board", "/down/labels": `app="shop"`, "/down/note": "hello", "/down/cpu": "250",
		"/mixed/config/color": "blue", "/mixed/secret/password": "s3cret", "/mixed/name": "files-board",
	}, got)
	p.same("modes", [2]string{"0444", "0400"}, [2]string{f["/mixed/config/color"].Mode, f["/mixed/secret/password"].Mode})
}

const mountsPod = `
apiVersion: v1
kind: Pod
metadata: {name: mounts}
spec:
  restartPolicy: Never
  volumes:
  - {name: disk, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: nested, hostPath: {path: /var/tmp/e2e/nested, type: Directory}}
  containers:
  - name: report
    image: program
    command: [/program, report]
    volumeMounts:
    - {name: disk, mountPath: /disk}
    - {name: disk, mountPath: /readonly, readOnly: true}
    - {name: memory, mountPath: /memory}
    - {name: nested, mountPath: /nested, readOnly: true}
    - {name: nested, mountPath: /deep, readOnly: true, recursiveReadOnly: Enabled}
  - {name: stat, image: program, command: [/program, file, stat, /disk, /memory], volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}]}
  - {name: fill, image: program, command: [/program, fill, /memory/big, "3"], volumeMounts: [{name: memory, mountPath: /memory}]}
  - {name: write, image: program, command: [/program, file, write, /readonly/x, text], volumeMounts: [{name: disk, mountPath: /readonly, readOnly: true}]}
`

func mountOptions(n node) {
	p := n.pod("mounts")
	f, r := p.stats("stat"), p.report("report")
	p.same("modes", [2]string{"0777", "0777"}, [2]string{f["/disk"].Mode, strings.Replace(f["/memory"].Mode, "1777", "0777", 1)})
	p.same("the one in memory", "tmpfs", r.At("/memory").Type)
	p.holds("its size is limited", strings.Contains(r.At("/memory").Super, "size=1024k"), r.At("/memory").Super)
	p.logged("fill", "no space left")
	p.same("read-only", [2]bool{false, true}, [2]bool{r.At("/disk").Has("ro"), r.At("/readonly").Has("ro")})
	p.logged("write", "read-only file system")
	p.same("a mount below a read-only one is read-only only if that is recursive", [2]bool{false, true},
		[2]bool{r.At("/nested/inner").Has("ro"), r.At("/deep/inner").Has("ro")})
}

const pathsPod = `
apiVersion: v1
kind: Pod
metadata: {name: paths}
spec:
  restartPolicy: Never
  volumes:
  - {name: any, hostPath: {path: /etc/hostname}}
  - {name: made, hostPath: {path: /var/tmp/e2e/made/dir, type: DirectoryOrCreate}}
  - {name: file, hostPath: {path: /var/tmp/e2e/made-file, type: FileOrCreate}}
  - {name: socket, hostPath: {path: /run/containerd/containerd.sock, type: Socket}}
  - {name: device, hostPath: {path: /dev/null, type: CharDevice}}
  - {name: disk, emptyDir: {}}
  - {name: config, configMap: {name: settings}}
  initContainers:
  - {name: fill, image: busybox, command: [sh, -c, "mkdir -p /disk/x/y && echo deep > /disk/x/y/text"], volumeMounts: [{name: disk, mountPath: /disk}]}
  containers:
  - name: c
    image: program
    command: [/program, file, stat, /any, /made, /file, /socket, /device, /sub/text, /color, /disk/by-name/paths-board, /new]
    env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    volumeMounts:
    - {name: any, mountPath: /any}
    - {name: made, mountPath: /made}
    - {name: file, mountPath: /file}
    - {name: socket, mountPath: /socket}
    - {name: device, mountPath: /device}
    - {name: disk, mountPath: /disk}
    - {name: disk, mountPath: /sub, subPath: x/y}
    - {name: disk, mountPath: /new, subPath: n/e/w}
    - {name: disk, mountPath: /expr, subPathExpr: by-name/$(NAME)}
    - {name: config, mountPath: /color, subPath: color}
`

func hostAndSubPaths(n node) {
	p := n.pod("paths")
	f := p.stats("c")
	got := map[string]string{}
	for path, s := range f {
		got[path] = strings.TrimSpace(s.Type + " " + strings.TrimSpace(s.Content) + s.Error)
	}
	p.same("what containers see", map[string]string{
		"/any": "- board", "/made": "d", "/file": "-", "/socket": "S", "/device": "D",
		"/sub/text": "- deep", "/color": "- blue", "/disk/by-name/paths-board": "d", "/new": "d",
	}, got)
	p.same("modes of what was made", [2]string{"0755", "0644"}, [2]string{f["/made"].Mode, f["/file"].Mode})
}

const claimsPod = `
apiVersion: v1
kind: Pod
metadata: {name: claims}
spec:
  restartPolicy: Never
  volumes:
  - {name: host, persistentVolumeClaim: {claimName: claim-host}}
  - {name: local, persistentVolumeClaim: {claimName: claim-local, readOnly: true}}
  containers:
  - name: c
    image: program
    command: [/program, file, stat, /host/text, /local/text]
    volumeMounts: [{name: host, mountPath: /host}, {name: local, mountPath: /local}]
  - {name: write, image: program, command: [/program, file, write, /host/written, text], volumeMounts: [{name: host, mountPath: /host}]}
  - {name: readonly, image: program, command: [/program, file, write, /local/written, text], volumeMounts: [{name: local, mountPath: /local}]}
`

func claims(n node) {
	p := n.pod("claims")
	f := p.stats("c")
	p.same("a hostPath volume", "host\n", f["/host/text"].Content)
	p.same("a local volume", "local\n", f["/local/text"].Content)
	p.logged("write", "written /host/written")
	p.same("on the board", "text", n.sh("cat %s/pv-host/written", sharedDir))
	p.logged("readonly", "read-only file system")
}

const imageVolumePod = `
apiVersion: v1
kind: Pod
metadata: {name: image}
spec:
  restartPolicy: Never
  volumes: [{name: v, image: {reference: "localhost/files:1", pullPolicy: Never}}]
  containers:
  - {name: c, image: program, command: [/program, file, stat, /v/dir/text], volumeMounts: [{name: v, mountPath: /v}]}
  - {name: write, image: program, command: [/program, file, write, /v/new, text], volumeMounts: [{name: v, mountPath: /v}]}
`

func imageVolume(n node) {
	p := n.pod("image")
	p.same("its file", "from an image", p.stats("c")["/v/dir/text"].Content)
	p.logged("write", "read-only file system")
}

const watchPod = `
apiVersion: v1
kind: Pod
metadata: {name: watch}
spec:
  terminationGracePeriodSeconds: 1
  volumes:
  - {name: config, configMap: {name: changing}}
  - {name: secret, secret: {secretName: changing}}
  containers:
  - {name: config, image: program, command: [/program, file, watch, /v/color], volumeMounts: [{name: config, mountPath: /v}]}
  - {name: secret, image: program, command: [/program, file, watch, /v/color], volumeMounts: [{name: secret, mountPath: /v}]}
  - {name: fixed, image: program, command: [/program, file, watch, /color], volumeMounts: [{name: config, mountPath: /color, subPath: color}]}
`

func updates(n node) {
	p := n.pod("watch")
	d := p.status("Running")
	p.logged("config", "blue")
	p.logged("secret", "blue")
	p.logged("fixed", "blue")
	link := func() string {
		return n.sh("readlink /var/lib/kubelet/pods/%s/volumes/kubernetes.io~configmap/config/..data", d.UID)
	}
	before := link()
	n.object("changing.yaml", changing("green"))
	start := time.Now()
	p.logged("config", "green")
	p.Logf("watch: the ConfigMap's change was seen after %.0f s", time.Since(start).Seconds())
	p.logged("secret", "green")
	p.holds("the ..data link points elsewhere", link() != before, before)
	p.holds("no half state was seen", !strings.Contains(p.log("config"), "no such file"), p.log("config"))
	p.holds("a subPath keeps what it was", !strings.Contains(p.log("fixed"), "green"), p.log("fixed"))
	d = p.status("Running")
	p.same("restarts", 0, d.Restarts)
}

const propagationPod = `
apiVersion: v1
kind: Pod
metadata: {name: spread}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: v, hostPath: {path: /var/tmp/e2e/shared, type: Directory}}]
  containers:
  - {name: none, image: busybox, command: [sleep, "100000"], volumeMounts: [{name: v, mountPath: /v}]}
  - {name: taker, image: busybox, command: [sleep, "100000"], volumeMounts: [{name: v, mountPath: /v, mountPropagation: HostToContainer}]}
  - name: giver
    image: busybox
    command: [sh, -c, "sleep 5; mkdir -p /v/given && mount -t tmpfs given /v/given && echo mounted; sleep 100000"]
    securityContext: {privileged: true}
    volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]
`

func propagation(n node) {
	p := n.pod("spread")
	p.until("all run", func(d *cli.DescriptionDocument) string { return ready("none taker giver")(d) })
	p.logged("giver", "mounted")
	sees := func(container string) bool {
		return n.sh("grep -c ' /v/given ' /proc/%s/mountinfo; true", p.process(container)) == "1"
	}
	p.same("who sees the giver's mount: none, taker, giver", [3]bool{false, true, true}, [3]bool{sees("none"), sees("taker"), sees("giver")})
	p.same("the board sees it", "1", n.sh("grep -c ' %s/shared/given ' /proc/self/mountinfo; true", sharedDir))
}
