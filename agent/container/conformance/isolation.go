package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The parts of this file examine containers from the inside. They need processes, which the
// fake has not.

// needsProcesses skips a part for a runtime without processes.
func (w *testEnv) needsProcesses() {
	w.Helper()
	if w.Features == nil {
		w.Skip("the runtime runs no processes")
	}
}

// inside returns what a script writes in a container.
func (w *testEnv) inside(id, script string) string {
	w.Helper()
	stdout, stderr, code, err := w.Runtime.ExecSync(w.Context(), id, shell(script), w.Timeout)
	if err != nil || code != 0 {
		w.Fatalf("%s: code %d, %v: %s%s", script, code, err, stdout, stderr)
	}
	return strings.TrimSpace(string(stdout))
}

// log returns the text of a container's log, without times and streams.
func (p *pod) log(name string) string {
	p.w.Helper()
	data, err := os.ReadFile(filepath.Join(p.config.GetLogDirectory(), name, "0.log"))
	p.w.ok("read log", err)
	var out strings.Builder
	for line := range strings.Lines(string(data)) {
		if fields := strings.SplitN(line, " ", 4); len(fields) == 4 {
			out.WriteString(fields[3])
		}
	}
	return out.String()
}

// isolated describes a pod with a network, a hostname and sysctls of its own.
func (w *testEnv) isolated() *pod {
	p := w.newPod()
	p.config.Hostname = "isolated"
	p.config.DnsConfig = &runtimeapi.DNSConfig{Servers: []string{"192.0.2.1", "192.0.2.2"}, Searches: []string{"a.example", "b.example"}, Options: []string{"ndots:5"}}
	p.config.Linux.SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_POD
	p.config.Linux.Sysctls = map[string]string{"net.ipv4.ip_local_port_range": "40000 41000", "kernel.shm_rmid_forced": "1"}
	return p
}

// startIn starts a container that has the sandbox' namespaces.
func (p *pod) startIn(name, script string, change func(*runtimeapi.ContainerConfig)) string {
	p.w.Helper()
	c := p.containerConfig(name, script)
	options := p.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	c.Linux.SecurityContext.NamespaceOptions = &runtimeapi.NamespaceOption{Network: options.GetNetwork(), Ipc: options.GetIpc(), Pid: options.GetPid(), UsernsOptions: options.GetUsernsOptions()}
	if change != nil {
		change(c)
	}
	id := p.create(c)
	p.w.ok("StartContainer", p.w.Runtime.StartContainer(p.w.Context(), id))
	return id
}

func testNamespaces(w *testEnv) {
	w.needsProcesses()
	if !w.Features.PodNetwork {
		w.Skip("the environment has no network of pods")
	}
	p := w.isolated()
	p.run()
	s, err := w.Runtime.PodSandboxStatus(w.Context(), p.id)
	w.ok("PodSandboxStatus", err)
	ip := s.GetNetwork().GetIp()
	if ip == "" {
		w.Fatal("the sandbox has no address")
	}
	one, two := p.startIn("one", scriptForever, nil), p.startIn("two", scriptForever, nil)
	for _, tt := range []struct{ what, script, want string }{
		{"address", "ip -o -4 addr show eth0 | sed 's/.*inet //;s#/.*##'", ip},
		{"loopback", "ip -o link show lo | grep -c ',UP'", "1"},
		{"hostname", "hostname", "isolated"},
		{"file of the hostname", "cat /etc/hostname", "isolated"},
		{"sysctl of the network", "cat /proc/sys/net/ipv4/ip_local_port_range | xargs", "40000 41000"},
		{"sysctl of IPC", "cat /proc/sys/kernel/shm_rmid_forced", "1"},
		{"ports without a privilege", "cat /proc/sys/net/ipv4/ip_unprivileged_port_start", "0"},
		{"ping without a privilege", "cat /proc/sys/net/ipv4/ping_group_range | xargs", "0 2147483647"},
		{"resolv.conf", "cat /etc/resolv.conf", "search a.example b.example\nnameserver 192.0.2.1\nnameserver 192.0.2.2\noptions ndots:5"},
		{"shared memory", "grep ' /dev/shm ' /proc/mounts | cut -d ' ' -f 3", "tmpfs"},
		{"size of the shared memory", "df -k /dev/shm | awk 'END { print $2 }'", "65536"},
	} {
		if got := w.inside(one, tt.script); got != tt.want {
			w.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
	// The containers of a pod share them, and the host does not.
	w.inside(one, "echo shared > /dev/shm/file")
	if got := w.inside(two, "cat /dev/shm/file; hostname; ls -l /proc/self/ns/net | sed 's/.*-> //'"); got != "shared\nisolated\n"+w.inside(one, "ls -l /proc/self/ns/net | sed 's/.*-> //'") {
		w.Errorf("the second container of the pod sees %q", got)
	}
	if host, err := os.Readlink("/proc/self/ns/net"); err != nil || strings.Contains(w.inside(one, "ls -l /proc/self/ns/net"), host) {
		w.Errorf("the network namespace is the host's, %v", err)
	}
	if _, err := os.Stat("/dev/shm/file"); err == nil {
		w.Error("the host has the pod's shared memory")
	}
}

func testSysctlRefused(w *testEnv) {
	w.needsProcesses()
	p := w.newPod() // on the host network
	p.config.Linux.Sysctls = map[string]string{"net.core.somaxconn": "77"}
	before, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	w.ok("read sysctl of the host", err)
	id, runErr := w.Runtime.RunPodSandbox(w.Context(), p.config, "")
	if runErr == nil {
		w.ok("RemovePodSandbox", w.Runtime.RemovePodSandbox(w.Context(), id))
	}
	after, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	w.ok("read sysctl of the host", err)
	if runErr == nil || string(before) != string(after) {
		w.Errorf("a sysctl of the network with the host's network: %v; it is %q, was %q", runErr, after, before)
	}
}

func testSharedPID(w *testEnv) {
	w.needsProcesses()
	p := w.newPod()
	p.config.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
	p.run()
	target := p.startIn("target", "exec sleep 4242", nil)
	other := p.startIn("other", scriptForever, nil)
	find := `for p in /proc/[0-9]*; do [ "$(tr '\0' ' ' < $p/cmdline)" = "sleep 4242 " ] && echo ${p#/proc/}; done; true`
	pid := w.inside(other, find)
	if pid == "" || pid == "1" {
		w.Fatalf("the other container sees the process as %q", pid)
	}
	w.inside(other, "kill -9 "+pid)
	if s := w.waitExited(target); s.GetExitCode() != 137 {
		w.Errorf("exit code is %d, want 137", s.GetExitCode())
	}
	if s := w.status(other); s.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		w.Errorf("the other container is %v", s.GetState())
	}
}

func testTargetPID(w *testEnv) {
	w.needsProcesses()
	p := w.runPod()
	target := p.startIn("target", "exec sleep 4244", nil)
	mode := func(id string) func(*runtimeapi.ContainerConfig) {
		return func(c *runtimeapi.ContainerConfig) {
			c.Linux.SecurityContext.NamespaceOptions.Pid, c.Linux.SecurityContext.NamespaceOptions.TargetId = runtimeapi.NamespaceMode_TARGET, id
		}
	}
	debugger := p.startIn("debugger", scriptForever, mode(target))
	if got := w.inside(debugger, `tr '\0' ' ' < /proc/1/cmdline`); got != "sleep 4244" {
		w.Errorf("the first process is %q", got)
	}
	w.ok("StopContainer", w.Runtime.StopContainer(w.Context(), target, 0))
	w.waitExited(debugger) // with its PID namespace

	other := w.runPod()
	c := other.containerConfig("debugger", scriptForever)
	mode(target)(c)
	if id, err := w.Runtime.CreateContainer(w.Context(), other.id, c, other.config); err == nil {
		if err = w.Runtime.StartContainer(w.Context(), id); err == nil {
			w.Error("a container runs whose target is in another sandbox and has ended")
		}
	}
}

func testHostPID(w *testEnv) {
	w.needsProcesses()
	p := w.newPod()
	p.config.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_NODE
	p.run()
	id := p.startIn("main", `sleep 4343 & sleep 4343 & echo ready; sleep 1000`, nil)
	p.waitReady("main")
	running := func() (n int) {
		all, err := filepath.Glob("/proc/[0-9]*/cmdline")
		w.ok("list processes", err)
		for _, path := range all {
			if data, err := os.ReadFile(path); err == nil && string(data) == "sleep\x004343\x00" {
				n++
			}
		}
		return n
	}
	if got := running(); got != 2 {
		w.Errorf("the host sees %d processes of the container, want 2", got)
	}
	w.ok("StopContainer", w.Runtime.StopContainer(w.Context(), id, 0))
	w.waitExited(id)
	w.eventually("the end of the container's processes", func() error {
		if n := running(); n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
}

func testTerminal(w *testEnv) {
	w.needsProcesses()
	p := w.runPod()
	id := p.startIn("main", `test -t 0 && test -t 1 && echo terminal; read line; echo "received $line"; sleep 1000`, func(c *runtimeapi.ContainerConfig) {
		c.Tty, c.Stdin = true, true
	})
	p.waitReady("main")
	s := w.open(w.Runtime.Attach(w.Context(), &runtimeapi.AttachRequest{ContainerId: id, Tty: true, Stdin: true, Stdout: true}))
	s.send(channelStdin, "word\n")
	if !s.receiveUntil(func() bool { return strings.Contains(s.received[channelStdout], "received word\r\n") }) {
		w.Errorf("the session ended after %q", s.received)
	}
	w.eventually("log of the terminal", func() error {
		if got := p.log("main"); !strings.HasPrefix(got, "terminal\n") || !strings.HasSuffix(got, "\nreceived word\n") {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

func testStdin(w *testEnv) {
	w.needsProcesses()
	p := w.runPod()
	id := p.startIn("main", `while read line; do echo "got $line"; done`, func(c *runtimeapi.ContainerConfig) { c.Stdin = true })
	for _, word := range []string{"first", "second"} {
		s := w.open(w.Runtime.Attach(w.Context(), &runtimeapi.AttachRequest{ContainerId: id, Stdin: true, Stdout: true, Stderr: true}))
		s.send(channelStdin, word+"\n")
		if !s.receiveUntil(func() bool { return s.received[channelStdout] == "got "+word+"\n" }) {
			w.Errorf("the session ended after %q", s.received)
		}
		w.ok("close the session", s.conn.Close())
	}
	if s := w.status(id); s.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		w.Errorf("after its clients the container is %v", s.GetState())
	}
}

func testStdinOnce(w *testEnv) {
	w.needsProcesses()
	p := w.runPod()
	id := p.startIn("main", "cat; echo end", func(c *runtimeapi.ContainerConfig) { c.Stdin, c.StdinOnce = true, true })
	s := w.open(w.Runtime.Attach(w.Context(), &runtimeapi.AttachRequest{ContainerId: id, Stdin: true, Stdout: true, Stderr: true}))
	s.send(channelStdin, "first\n")
	if !s.receiveUntil(func() bool { return s.received[channelStdout] == "first\n" }) {
		w.Errorf("the session ended after %q", s.received)
	}
	w.ok("close the session", s.conn.Close())
	if status := w.waitExited(id); status.GetExitCode() != 0 {
		w.Errorf("exit code is %d", status.GetExitCode())
	}
	if got := p.log("main"); got != "first\nend\n" {
		w.Errorf("the log is %q", got)
	}
}

func testImageConfig(w *testEnv) {
	w.needsProcesses()
	if w.Features.Configured == "" {
		w.Skip("the environment names no image with a configuration")
	}
	p := w.runPod()
	configured := func(c *runtimeapi.ContainerConfig) {
		c.Image = &runtimeapi.ImageSpec{Image: w.Features.Configured}
		c.Envs = []*runtimeapi.KeyValue{{Key: "Z", Value: []byte("1")}, {Key: "B", Value: []byte("container")}, {Key: "A", Value: []byte("last\nline")}, {Key: "Z", Value: []byte("2")}}
	}
	id := p.startIn("main", scriptForever, configured)
	for _, tt := range []struct{ what, script, want string }{
		{"user", "id -u; id -g", "1234\n2345"},
		{"groups", "id -G", "2345 3456"},
		{"environment", `env | grep -E '^[BCZ]=' | sort | xargs`, "B=container C=image Z=2"},
		{"value of two lines", `printf %s "$A"`, "last\nline"},
		{"volume", "cat /data/seed; ls -ld /data | cut -c 1-10; ls -ldn /data | awk '{ print $3, $4 }'", "seed\ndrwxr-x---\n1234 2345"},
		{"volume can be written", "echo more > /data/more; grep -c ' /data ' /proc/mounts", "1"},
	} {
		if got := w.inside(id, tt.script); got != tt.want {
			w.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
	// The content of a volume is that of one container.
	again := p.startIn("again", scriptForever, configured)
	if got := w.inside(again, "ls /data"); got != "seed" {
		w.Errorf("the volume of another container has %q", got)
	}
	named := p.startIn("named", scriptForever, func(c *runtimeapi.ContainerConfig) {
		c.Image = &runtimeapi.ImageSpec{Image: w.Features.Configured}
		c.Linux.SecurityContext.RunAsUsername = "nobody"
	})
	if got := w.inside(named, "id -u; id -g"); got != "65534\n65534" {
		w.Errorf("the user nobody is %q", got)
	}
	absent := p.containerConfig("absent", scriptForever)
	absent.Linux.SecurityContext.RunAsUsername = "absent"
	if id, err := w.Runtime.CreateContainer(w.Context(), p.id, absent, p.config); err == nil {
		if err = w.Runtime.StartContainer(w.Context(), id); err == nil {
			w.Error("a container of an absent user runs")
		}
	}
}

func testImageVolume(w *testEnv) {
	w.needsProcesses()
	if w.Features.Configured == "" || !w.Features.ImageVolumes {
		w.Skip("the environment has no image volumes")
	}
	p := w.runPod()
	volume := func(path, sub string) func(*runtimeapi.ContainerConfig) {
		return func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{ContainerPath: path, Readonly: true, Image: &runtimeapi.ImageSpec{Image: w.Features.Configured}, ImageSubPath: sub}}
		}
	}
	whole := p.startIn("whole", scriptForever, volume("/volume", ""))
	if got := w.inside(whole, "cat /volume/data/seed; touch /volume/data/new 2> /dev/null || echo cannot write"); got != "seed\ncannot write" {
		w.Errorf("the volume has %q", got)
	}
	part := p.startIn("part", scriptForever, volume("/volume", "data"))
	if got := w.inside(part, "cat /volume/seed"); got != "seed" {
		w.Errorf("the part of the volume has %q", got)
	}
	for _, sub := range []string{"absent", "data/seed", "../.."} {
		c := p.containerConfig("refused", scriptForever)
		volume("/volume", sub)(c)
		if _, err := w.Runtime.CreateContainer(w.Context(), p.id, c, p.config); err == nil {
			w.Errorf("a volume with the part %q of an image was created", sub)
		}
	}
}

// hasUsers reports whether the default handler has user namespaces.
func (w *testEnv) hasUsers() bool {
	w.Helper()
	status, err := w.Runtime.Status(w.Context())
	w.ok("Status", err)
	for _, h := range status.GetRuntimeHandlers() {
		if h.GetName() == "" {
			return h.GetFeatures().GetUserNamespaces()
		}
	}
	return false
}

func testUsers(w *testEnv) {
	w.needsProcesses()
	if w.Features.Configured == "" || !w.Features.PodNetwork || !w.hasUsers() {
		w.Skip("the runtime has no user namespaces")
	}
	const first, size = 300000, 65536
	mapping := []*runtimeapi.IDMapping{{HostId: first, ContainerId: 0, Length: size}}
	p := w.isolated()
	options := p.config.Linux.SecurityContext.NamespaceOptions
	options.UsernsOptions = &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: mapping, Gids: mapping}
	options.Pid = runtimeapi.NamespaceMode_POD
	p.run()
	id := p.startIn("main", scriptForever, func(c *runtimeapi.ContainerConfig) {
		c.Image = &runtimeapi.ImageSpec{Image: w.Features.Configured}
		if w.Features.ImageVolumes {
			c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/volume", Readonly: true, Image: c.Image, UidMappings: mapping, GidMappings: mapping}}
		}
	})
	root := p.startIn("root", scriptForever, nil)
	for _, tt := range []struct{ what, id, script, want string }{
		{"mapping", id, "cat /proc/self/uid_map /proc/self/gid_map | xargs", fmt.Sprintf("0 %d %d 0 %d %d", first, size, first, size)},
		{"user", id, "id -u; id -G", "1234\n2345 3456"},
		{"volume", id, "cat /data/seed; echo more > /data/more; ls -ldn /data /data/* | awk '{ print $3, $4 }' | xargs", "seed\n1234 2345 1234 2345 1234 2345"},
		{"root file system", root, "touch /new; ls -ldn / /new /bin/busybox | awk '{ print $3, $4 }' | xargs", "0 0 0 0 0 0"},
		{"hostname", root, "hostname", "isolated"},
		{"sysctls", root, "cat /proc/sys/net/ipv4/ip_local_port_range /proc/sys/kernel/shm_rmid_forced | xargs", "40000 41000 1"},
		{"user namespace of the first process", root, "cat /proc/1/uid_map | xargs", fmt.Sprintf("0 %d %d", first, size)},
	} {
		if got := w.inside(tt.id, tt.script); got != tt.want {
			w.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
	if w.Features.ImageVolumes {
		if got := w.inside(id, "cat /volume/data/seed; ls -ldn /volume/data | awk '{ print $3, $4 }'"); got != "seed\n1234 2345" {
			w.Errorf("image as a volume: %q", got)
		}
	}
	for what, bad := range map[string]*runtimeapi.UserNamespace{
		"two mappings":          {Mode: runtimeapi.NamespaceMode_POD, Uids: append(mapping, mapping...), Gids: mapping},
		"no mapping":            {Mode: runtimeapi.NamespaceMode_POD},
		"a mapping without 0":   {Mode: runtimeapi.NamespaceMode_POD, Uids: []*runtimeapi.IDMapping{{HostId: first, ContainerId: 1, Length: size}}, Gids: mapping},
		"mappings of the host":  {Mode: runtimeapi.NamespaceMode_NODE, Uids: mapping, Gids: mapping},
		"mode of the container": {Mode: runtimeapi.NamespaceMode_CONTAINER, Uids: mapping, Gids: mapping},
	} {
		q := w.isolated()
		q.config.Linux.SecurityContext.NamespaceOptions.UsernsOptions = bad
		if id, err := w.Runtime.RunPodSandbox(w.Context(), q.config, ""); err == nil {
			w.Errorf("%s: sandbox %s runs", what, id)
		}
	}
}

// testOOMKiller runs a container until its memory limit ends it. A second one in the pod goes
// on.
func testOOMKiller(w *testEnv) {
	w.needsProcesses()
	p := w.runPod()
	limit := func(c *runtimeapi.ContainerConfig) {
		c.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 16 << 20}
	}
	other := p.startIn("other", scriptForever, limit)
	id := p.startIn("main", "exec tail /dev/zero", limit)
	if s := w.waitExited(id); s.GetExitCode() != 137 || s.GetReason() != "OOMKilled" {
		w.Errorf("exit code %d, reason %q", s.GetExitCode(), s.GetReason())
	}
	w.ok("StopContainer", w.Runtime.StopContainer(w.Context(), other, 0))
	if s := w.waitExited(other); s.GetReason() != "Error" {
		w.Errorf("the other container: reason %q", s.GetReason())
	}
}
