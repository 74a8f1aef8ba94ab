//go:build cluster

package addons

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/test/harness/board/imagetar"
	"github.com/tinylet/tinylet/test/harness/controlplane"
)

// nftables is the mode of kube-proxy on a board without iptables.
const nftables = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n"

// TestAddons runs the add-ons of clusters on a board: first with the pods'
// network of tinylet, which leaves Services to kube-proxy, then with flannel's.
func TestAddons(t *testing.T) {
	t.Run("own network", func(t *testing.T) {
		l := start(t, "bridge")
		l.ready()
		l.run(t,
			step{"kube-proxy", true, lab.kubeProxy},
			step{"CoreDNS", false, lab.coreDNS},
			step{"mount propagation", false, lab.propagation},
			step{"node-exporter", false, lab.nodeExporter},
			step{"metrics-server", false, lab.metricsServer},
			step{"Prometheus", false, lab.prometheus},
		)
	})
	t.Run("flannel", func(t *testing.T) {
		l := start(t, "cni")
		l.run(t,
			step{"before the network", true, lab.withoutNetwork},
			step{"flannel", true, lab.flannel},
			step{"kube-proxy", false, lab.kubeProxy},
			step{"CoreDNS", false, lab.coreDNS},
		)
	})
}

// kubeProxy installs kube-proxy, as kubeadm does, and reaches the pods of a
// Deployment by the addresses of their Services.
func (l lab) kubeProxy() {
	l.installKubeProxy()
	l.c.Apply(l.T, manifest(l.T, "web.yaml"))
	l.running("default", "app in (web,client)", 3)
	address := l.service("web").Spec.ClusterIP
	own := l.c.BoardNet(l.T, name).Address.Addr().String()
	for _, way := range []struct {
		name string
		ask  func() string
	}{
		{"a pod by the cluster IP", func() string { return l.inside("client", "wget -T 10 -q -O - http://"+address) }},
		{"the board by the cluster IP", func() string { return l.sh("wget -T 10 -q -O - http://" + address + " 2>&1; true") }},
		{"a pod by the node port", func() string { return l.inside("client", "wget -T 10 -q -O - http://"+own+":30080") }},
		{"the board by the node port", func() string { return l.sh("wget -T 10 -q -O - http://" + own + ":30080 2>&1; true") }},
		{"another machine by the node port", func() string { return l.c.Ask(l.T, "http://"+own+":30080") }},
	} {
		l.reaches("both pods answer to "+way.name, way.ask)
	}
	l.until("the API server answers to a pod by its cluster IP", func() string {
		if got := l.inside("client", "wget -T 10 -q -O - http://10.96.0.1:443 2>&1; true"); !strings.Contains(got, "400 Bad Request") {
			return got
		}
		return ""
	})
}

func (l lab) installKubeProxy() {
	l.Helper()
	if l.c.Must(l.T, "get", "daemonsets", "--namespace=kube-system", "--output=name") != "" {
		return
	}
	l.images(program(l.c.AddonImage(l.T, "kube-proxy"), "usr/local/bin/kube-proxy", built(l.T, "kube-proxy"), nft(l.T)...))
	l.c.Addon(l.T, "kube-proxy", nftables)
	l.running("kube-system", "k8s-app=kube-proxy", 1)
}

// reaches asks until each of the two web servers has answered.
func (l lab) reaches(what string, ask func() string) {
	l.Helper()
	answers := map[string]int{}
	l.until(what, func() string {
		got := strings.TrimSpace(ask())
		answers[got]++
		servers := slices.DeleteFunc(slices.Collect(maps.Keys(answers)), func(a string) bool { return !strings.HasPrefix(a, "web-") || strings.Contains(a, " ") })
		if len(servers) == 2 {
			return ""
		}
		return fmt.Sprint(answers)
	})
}

func (l lab) service(name string) corev1.Service {
	l.Helper()
	var s corev1.Service
	l.c.Get(l.T, &s, "service", name)
	return s
}

// coreDNS installs CoreDNS, as kubeadm does, and resolves names in a pod.
func (l lab) coreDNS() {
	l.images(program(l.c.AddonImage(l.T, "coredns"), "coredns", built(l.T, "coredns")))
	l.c.Addon(l.T, "coredns", nftables)
	l.running("kube-system", "k8s-app=kube-dns", 2)
	web := l.service("web").Spec.ClusterIP
	var pods corev1.PodList
	l.c.Get(l.T, &pods, "pods", "--selector=app=web")
	var each []string
	for _, p := range pods.Items {
		each = append(each, p.Status.PodIP)
	}
	for _, q := range []struct {
		name, command string
		want          []string
	}{
		{"the pod's resolv.conf", "cat /etc/resolv.conf", []string{"nameserver " + controlplane.DNS, "search default.svc.cluster.local svc.cluster.local cluster.local", "ndots:5"}},
		{"a short name", "nslookup web", []string{"web.default.svc.cluster.local", web}},
		// The applet nslookup does not search for a name with a dot; the C library does.
		{"a name with its namespace", "ping -c 1 -W 1 kube-dns.kube-system 2>&1; true", []string{"(" + controlplane.DNS + ")"}},
		{"a full name", "nslookup web.default.svc.cluster.local", []string{web}},
		{"a headless Service", "nslookup each.default.svc.cluster.local", each},
		{"a port", "nslookup -type=srv _http._tcp.web.default.svc.cluster.local", []string{"web.default.svc.cluster.local", " 80 "}},
		{"an address", "nslookup " + web, []string{"web.default.svc.cluster.local"}},
		{"a short name by the C library", "wget -T 10 -q -O - http://web", []string{"web-"}},
	} {
		l.until(q.name, func() string {
			got := l.inside("client", q.command)
			for _, want := range q.want {
				if !strings.Contains(got, want) {
					return fmt.Sprintf("%q is missing in %q", want, got)
				}
			}
			return ""
		})
	}
}

// propagation has a privileged container mount for the node and for others.
func (l lab) propagation() {
	l.c.Apply(l.T, manifest(l.T, "propagation.yaml"))
	l.running("default", "app in (driver,watcher)", 2)
	driver := strings.TrimPrefix(l.c.Must(l.T, "get", "pods", "--selector=app=driver", "--output=name"), "pod/")
	in := func(pod, container, script string) string {
		l.Helper()
		return l.c.Must(l.T, "exec", pod, "--container="+container, "--", "sh", "-c", script)
	}
	sees := map[string]func() string{
		"the node":               func() string { return l.sh("cat /var/lib/driver/volume/file; true") },
		"a pod that follows":     func() string { return in("watcher", "main", "cat /seen/volume/file; true") },
		"a pod that is private":  func() string { return in("watcher", "apart", "cat /seen/volume/file; true") },
		"the driver that mounts": func() string { return in(driver, "main", "cat /shared/volume/file; true") },
	}
	in(driver, "main", "mkdir /shared/volume && mount -t tmpfs none /shared/volume && echo mounted >/shared/volume/file")
	for who, read := range sees {
		want := "mounted"
		if who == "a pod that is private" {
			want = ""
		}
		if got := strings.TrimSpace(read()); got != want {
			l.Errorf("%s sees %q, want %q", who, got, want)
		}
	}
	in(driver, "main", "umount /shared/volume")
	for who, read := range sees {
		if got := strings.TrimSpace(read()); got != "" {
			l.Errorf("%s sees %q after the end of the mount", who, got)
		}
	}
	if got := l.sh("grep -c /var/lib/driver/volume /proc/mounts; true"); strings.TrimSpace(got) != "0" {
		l.Errorf("the node has %s mounts left", got)
	}
	l.c.Must(l.T, "delete", "daemonset/driver", "pod/watcher", "--wait=true", "--timeout=5m")
}

// withoutNetwork has a node join that has no network for pods yet: it is not
// Ready, and says why.
func (l lab) withoutNetwork() {
	l.until("the node waits for its network", func() string {
		for _, c := range l.node().Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "network not ready") {
				l.Logf("the condition Ready: %s: %s", c.Reason, c.Message)
				return ""
			}
		}
		return "it does not"
	})
	// kube-proxy sets limits of the first module, which nothing else loads here.
	// By the second one, replies between pods of one bridge pass its rules.
	l.sh("modprobe nf_conntrack && modprobe br_netfilter")
	l.installKubeProxy()
}

// flannel installs the upstream plugins, as distributions do, and flannel.
func (l lab) flannel() {
	l.sh("mkdir -p /opt/cni/bin")
	for _, plugin := range []string{"bridge", "host-local", "portmap", "loopback", "bandwidth"} {
		if err := l.vm.Put(l.Context(), "/opt/cni/bin/"+plugin, strings.NewReader(string(built(l.T, plugin))), 0o755); err != nil {
			l.Fatal(err)
		}
	}
	busybox, err := l.vm.Get(l.Context(), "/usr/bin/busybox")
	if err != nil {
		l.Fatal(err)
	}
	flanneld, err := imagetar.Busybox(flannelImage, "arm64", busybox)
	if err != nil {
		l.Fatal(err)
	}
	flanneld.Env = []string{path}
	flanneld.Files = append(flanneld.Files, imagetar.File{Name: "opt/bin/flanneld", Mode: 0o755, Data: built(l.T, "flanneld")})
	flanneld.Files = append(flanneld.Files, nft(l.T)...)
	// It removes rules of iptables from before, whatever makes its own.
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		flanneld.Files = append(flanneld.Files, imagetar.File{Name: "usr/sbin/" + name, Link: "xtables-nft-multi"})
	}
	plugin, err := imagetar.Busybox(flannelCNIImage, "arm64", busybox)
	if err != nil {
		l.Fatal(err)
	}
	plugin.Files = append(plugin.Files, imagetar.File{Name: "flannel", Mode: 0o755, Data: built(l.T, "flannel")})
	l.images(flanneld, plugin)
	l.c.Apply(l.T, manifest(l.T, "flannel.yaml"))
	l.running("kube-flannel", "app=flannel", 1)
	l.ready()
	cidr := l.node().Spec.PodCIDR
	l.until("flannel has leased the node's podCIDR", func() string {
		if got := l.sh("cat /run/flannel/subnet.env 2>&1; true"); !strings.Contains(got, "FLANNEL_SUBNET="+strings.TrimSuffix(cidr, "0/24")) {
			return fmt.Sprintf("its subnet is not in %s: %s", cidr, got)
		}
		return ""
	})
	if got := l.sh("ls /etc/cni/net.d"); strings.Contains(got, "tinylet") {
		l.Errorf("tinylet has written a configuration beside flannel's:\n%s", got)
	}
}
