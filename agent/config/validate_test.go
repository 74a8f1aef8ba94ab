package config

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDefaultIsValid(t *testing.T) {
	cfg, _ := mustBuild(t, nil, nil)
	if err := Validate(cfg); err != nil {
		t.Error(err)
	}
}

// kubeadm's configuration, as in its ConfigMap kubelet-config.
func TestKubeadmIsValid(t *testing.T) {
	cfg, warnings := mustBuild(t, []string{"--hostname-override=board", "--register-with-taints=node-role.kubernetes.io/edge=:NoSchedule"}, optional(kubeletHead+`
authentication:
  anonymous: {enabled: false}
  webhook: {cacheTTL: 0s, enabled: true}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization:
  mode: Webhook
  webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}
cgroupDriver: systemd
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: ""
cpuManagerReconcilePeriod: 0s
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
logging:
  flushFrequency: 0
  options: {json: {infoBufferSize: "0"}, text: {infoBufferSize: "0"}}
  verbosity: 0
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
resolvConf: /run/systemd/resolve/resolv.conf
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
`))
	if len(warnings) > 0 {
		t.Errorf("warnings: %v", warnings)
	}
	if err := Validate(cfg); err != nil {
		t.Error(err)
	}
}

func TestInvalid(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"sync frequency", func(c *Config) { c.Kubelet.SyncFrequency.Duration = -time.Second }, "syncFrequency (--sync-frequency) is -1s: it must be 1ms or longer"},
		{"file check", func(c *Config) { c.Kubelet.FileCheckFrequency.Duration = 0 }, "fileCheckFrequency"},
		{"http check", func(c *Config) { c.Kubelet.HTTPCheckFrequency.Duration = 0 }, "httpCheckFrequency"},
		{"URL scheme", func(c *Config) { c.Kubelet.StaticPodURL = "file:///etc" }, "staticPodURL"},
		{"URL without host", func(c *Config) { c.Kubelet.StaticPodURL = "http:///x" }, "staticPodURL"},
		{"header name", func(c *Config) { c.Kubelet.StaticPodURLHeader = map[string][]string{"a b": {"c"}} }, `staticPodURLHeader (--manifest-url-header) is "a b"`},
		{"header value", func(c *Config) { c.Kubelet.StaticPodURLHeader = map[string][]string{"a": {"x\r\ny: z"}} }, "staticPodURLHeader[a]"},
		{"run once", func(c *Config) { c.Kubelet.RunOnce = true }, "runOnce (--runonce) is true"},
		{"TCP endpoint", func(c *Config) { c.Kubelet.ContainerRuntimeEndpoint = "tcp://1.2.3.4:5" }, "containerRuntimeEndpoint"},
		{"long endpoint", func(c *Config) { c.Kubelet.ContainerRuntimeEndpoint = "unix:///" + strings.Repeat("a", 107) }, "containerRuntimeEndpoint (--container-runtime-endpoint)"},
		{"relative socket", func(c *Config) { c.Kubelet.ImageServiceEndpoint = "unix://run/x" }, "imageServiceEndpoint"},
		{"request timeout", func(c *Config) { c.Kubelet.RuntimeRequestTimeout.Duration = 0 }, "runtimeRequestTimeout"},
		{"cgroup driver", func(c *Config) { c.Kubelet.CgroupDriver = "none" }, `cgroupDriver (--cgroup-driver) is "none": it must be one of cgroupfs, systemd`},
		{"port", func(c *Config) { c.Kubelet.Port = 0 }, "port (--port) is 0: it must be between 1 and 65535"},
		{"read-only port", func(c *Config) { c.Kubelet.ReadOnlyPort = 65536 }, "readOnlyPort"},
		{"healthz port", func(c *Config) { *c.Kubelet.HealthzPort = -1 }, "healthzPort"},
		{"healthz address", func(c *Config) { c.Kubelet.HealthzBindAddress = "localhost" }, `healthzBindAddress (--healthz-bind-address) is "localhost": it must be an IP address`},
		{"idle timeout", func(c *Config) { c.Kubelet.StreamingConnectionIdleTimeout.Duration = -time.Second }, "streamingConnectionIdleTimeout (--streaming-connection-idle-timeout) is -1s"},
		{"token cache", func(c *Config) { c.Kubelet.Authentication.Webhook.CacheTTL.Duration = -time.Second }, "authentication.webhook.cacheTTL (--authentication-token-webhook-cache-ttl) is -1s"},
		{"authorized cache", func(c *Config) { c.Kubelet.Authorization.Webhook.CacheAuthorizedTTL.Duration = -time.Second }, "authorization.webhook.cacheAuthorizedTTL"},
		{"unauthorized cache", func(c *Config) { c.Kubelet.Authorization.Webhook.CacheUnauthorizedTTL.Duration = -time.Second }, "authorization.webhook.cacheUnauthorizedTTL"},
		{"authorization", func(c *Config) { c.Kubelet.Authorization.Mode = "RBAC" }, "authorization.mode"},
		{"TLS version", func(c *Config) { c.Kubelet.TLSMinVersion = "1.2" }, "tlsMinVersion"},
		{"cipher suite", func(c *Config) { c.Kubelet.TLSCipherSuites = []string{"FOO"} }, "tlsCipherSuites (--tls-cipher-suites) is \"FOO\""},
		{"TLS curve", func(c *Config) { c.Kubelet.TLSCurvePreferences = []int32{0} }, "tlsCurvePreferences"},
		{"TLS curve beyond 16 bits", func(c *Config) { c.Kubelet.TLSCurvePreferences = []int32{1 << 16} }, "tlsCurvePreferences"},
		{"half a key pair", func(c *Config) { c.Kubelet.TLSCertFile = "/a" }, "tlsCertFile"},
		{"DNS server", func(c *Config) { c.Kubelet.ClusterDNS = []string{"dns"} }, "clusterDNS"},
		{"pod network", func(c *Config) { c.Kubelet.PodCIDR = "10.0.0.0" }, "podCIDR"},
		{"hairpin", func(c *Config) { c.Kubelet.HairpinMode = "x" }, "hairpinMode"},
		{"log format", func(c *Config) { c.Kubelet.Logging.Format = "xml" }, "logging.format"},
		{"log verbosity", func(c *Config) { c.Kubelet.Logging.Verbosity = 1 << 31 }, "logging.verbosity (--v)"},
		{"log size", func(c *Config) { c.Kubelet.ContainerLogMaxSize = "0" }, "containerLogMaxSize"},
		{"log size unit", func(c *Config) { c.Kubelet.ContainerLogMaxSize = "10MB" }, "containerLogMaxSize"},
		{"log files", func(c *Config) { *c.Kubelet.ContainerLogMaxFiles = 1 }, "containerLogMaxFiles"},
		{"log interval", func(c *Config) { c.Kubelet.ContainerLogMonitorInterval.Duration = time.Second }, "containerLogMonitorInterval"},
		{"image thresholds", func(c *Config) { *c.Kubelet.ImageGCLowThresholdPercent = 85 }, "below imageGCHighThresholdPercent"},
		{"image percent", func(c *Config) { *c.Kubelet.ImageGCHighThresholdPercent = 101 }, "imageGCHighThresholdPercent"},
		{"image age", func(c *Config) { c.Kubelet.ImageMaximumGCAge.Duration = time.Minute }, "imageMaximumGCAge"},
		{"parallel and serial", func(c *Config) { c.Kubelet.MaxParallelImagePulls = new(int32); *c.Kubelet.MaxParallelImagePulls = 2 }, "unless serializeImagePulls is false"},
		{"max pods", func(c *Config) { c.Kubelet.MaxPods = -1 }, "maxPods (--max-pods) is -1: it must be 0 or more"},
		{"oom score", func(c *Config) { *c.Kubelet.OOMScoreAdj = 1001 }, "oomScoreAdj"},
		{"CPU policy", func(c *Config) { c.Kubelet.CPUManagerPolicy = "dynamic" }, "cpuManagerPolicy"},
		{"nothing reserved for a static CPU policy", func(c *Config) { c.Kubelet.CPUManagerPolicy = "static" }, "set reservedSystemCPUs, or cpu in kubeReserved"},
		{"zero reserved for it", func(c *Config) {
			c.Kubelet.CPUManagerPolicy, c.Kubelet.KubeReserved = "static", map[string]string{"cpu": "0"}
		}, "set reservedSystemCPUs, or cpu in kubeReserved"},
		{"options of no CPU policy", func(c *Config) { c.Kubelet.CPUManagerPolicyOptions = map[string]string{"full-pcpus-only": "true"} }, "cpuManagerPolicyOptions"},
		{"list of CPUs", func(c *Config) { c.Kubelet.ReservedSystemCPUs = "0-1,a" }, "reservedSystemCPUs (--reserved-cpus) is \"0-1,a\": it must be a list of CPUs"},
		{"reserved CPUs and a group", func(c *Config) { c.Kubelet.ReservedSystemCPUs, c.Kubelet.SystemReservedCgroup = "0", "/system" }, "empty if systemReservedCgroup"},
		{"quota period", func(c *Config) { c.Kubelet.CPUCFSQuotaPeriod.Duration = 2 * time.Second }, "cpuCFSQuotaPeriod"},
		{"restart period", func(c *Config) { c.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod.Duration = 301 * time.Second }, "crashLoopBackOff.maxContainerRestartPeriod"},
		{"swap", func(c *Config) { c.Kubelet.MemorySwap.SwapBehavior = "UnlimitedSwap" }, "memorySwap.swapBehavior"},
		{"throttling", func(c *Config) { *c.Kubelet.MemoryThrottlingFactor = 0 }, "memoryThrottlingFactor"},
		{"shutdown", func(c *Config) { c.Kubelet.ShutdownGracePeriod.Duration = time.Millisecond }, "shutdownGracePeriod"},
		{"critical shutdown", func(c *Config) { c.Kubelet.ShutdownGracePeriodCriticalPods.Duration = time.Minute }, "shutdownGracePeriodCriticalPods"},
		{"lease", func(c *Config) { c.Kubelet.NodeLeaseDurationSeconds = -1 }, "nodeLeaseDurationSeconds"},
		{"eviction signal", func(c *Config) { c.Kubelet.EvictionHard = map[string]string{"memory": "1Mi"} }, "evictionHard"},
		{"eviction percent", func(c *Config) { c.Kubelet.EvictionHard = map[string]string{"memory.available": "101%"} }, "evictionHard[memory.available]"},
		{"eviction NaN", func(c *Config) { c.Kubelet.EvictionHard = map[string]string{"memory.available": "NaN%"} }, "evictionHard[memory.available]"},
		{"eviction quantity", func(c *Config) { c.Kubelet.EvictionSoft = map[string]string{"memory.available": "much"} }, "evictionSoft[memory.available]"},
		{"soft without grace", func(c *Config) { c.Kubelet.EvictionSoft = map[string]string{"memory.available": "1Mi"} }, "evictionSoft[memory.available]: no evictionSoftGracePeriod is set"},
		{"soft grace", func(c *Config) { c.Kubelet.EvictionSoftGracePeriod = map[string]string{"memory.available": "1"} }, "evictionSoftGracePeriod[memory.available]"},
		{"reserved name", func(c *Config) { c.Kubelet.KubeReserved = map[string]string{"gpu": "1"} }, "kubeReserved"},
		{"reserved quantity", func(c *Config) { c.Kubelet.SystemReserved = map[string]string{"cpu": "-1"} }, "systemReserved[cpu]"},
		{"enforcement", func(c *Config) { c.Kubelet.EnforceNodeAllocatable = []string{"all"} }, "enforceNodeAllocatable"},
		{"enforcement twice", func(c *Config) { c.Kubelet.EnforceNodeAllocatable = []string{"pods", "pods"} }, "named once"},
		{"none and more", func(c *Config) { c.Kubelet.EnforceNodeAllocatable = []string{"none", "pods"} }, "alone"},
		{"no cgroup to enforce on", func(c *Config) { c.Kubelet.EnforceNodeAllocatable = []string{"system-reserved"} }, "systemReservedCgroup"},
		{"enforcement without cgroups", func(c *Config) { *c.Kubelet.CgroupsPerQOS = false }, "cgroupsPerQOS"},
		{"taint effect", func(c *Config) { c.Kubelet.RegisterWithTaints = []v1.Taint{{Key: "a", Effect: "Never"}} }, "registerWithTaints[0].effect"},
		{"taint key", func(c *Config) { c.Kubelet.RegisterWithTaints = []v1.Taint{{Key: "a b", Effect: "NoExecute"}} }, "registerWithTaints[0].key"},
		{"taint time", func(c *Config) {
			c.Kubelet.RegisterWithTaints = []v1.Taint{{Key: "a", Effect: "NoExecute", TimeAdded: &metav1.Time{}}}
		}, "registerWithTaints[0].timeAdded"},
		{"log folder with dots", func(c *Config) { c.Kubelet.PodLogsDir = "/var/../log" }, "podLogsDir"},
		{"log folder beyond ASCII", func(c *Config) { c.Kubelet.PodLogsDir = "/var/lög" }, "podLogsDir"},
		{"log workers", func(c *Config) { *c.Kubelet.ContainerLogMaxWorkers = 0 }, "containerLogMaxWorkers"},
		{"enforcement of both kinds", func(c *Config) {
			c.Kubelet.SystemReservedCgroup = "/s"
			c.Kubelet.EnforceNodeAllocatable = []string{"system-reserved", "system-reserved-compressible"}
		}, "without system-reserved-compressible"},
		{"allowlist without its policy", func(c *Config) { c.Kubelet.PreloadedImagesVerificationAllowlist = []string{"a"} }, "preloadedImagesVerificationAllowlist"},
		{"few ids", func(c *Config) { *c.Kubelet.UserNamespaces.IDsPerPod = 1000 }, "userNamespaces.idsPerPod is 1000"},
		{"odd ids", func(c *Config) { *c.Kubelet.UserNamespaces.IDsPerPod = 65537 }, "userNamespaces.idsPerPod"},
		{"too many ids", func(c *Config) { *c.Kubelet.UserNamespaces.IDsPerPod = 1 << 32 }, "userNamespaces.idsPerPod"},
		{"objects", func(c *Config) { c.Tinylet.ObjectsFolder = "objects" }, "TinyletConfiguration.objectsFolder"},
		{"enrolment", func(c *Config) { c.Tinylet.EnrolKubeconfig = "x" }, "TinyletConfiguration.enrolKubeconfig"},
		{"journal key", func(c *Config) { c.Tinylet.JournalKeyFile = "x" }, "TinyletConfiguration.journalKeyFile"},
		{"sealed journal key", func(c *Config) { c.Tinylet.JournalKeyTPMFile = "x" }, "TinyletConfiguration.journalKeyTPMFile"},
		{"journal key of a keyring", func(c *Config) { c.Tinylet.JournalKeyring = "a\x00b" }, "TinyletConfiguration.journalKeyring"},
		{"journal", func(c *Config) { c.Tinylet.Journal = "plain" }, "TinyletConfiguration.journal is \"plain\""},
		{"no journal and a key", func(c *Config) { c.Tinylet.Journal, c.Tinylet.JournalKeyTPMFile = "off", "/x" }, "TinyletConfiguration.journalKeyTPMFile is \"/x\": it must be empty if TinyletConfiguration.journal is off"},
		{"two journal keys", func(c *Config) { c.Tinylet.JournalKeyFile, c.Tinylet.JournalKeyring = "/x", "x" }, "journalKeyring is \"x\": it must be empty if TinyletConfiguration.journalKeyFile is set"},
		{"two other journal keys", func(c *Config) { c.Tinylet.JournalKeyFile, c.Tinylet.JournalKeyTPMFile = "/x", "/y" }, "journalKeyTPMFile is \"/y\""},
		{"images", func(c *Config) { c.Tinylet.ImagesFolder = "." }, "TinyletConfiguration.imagesFolder"},
		{"our log format", func(c *Config) { c.Tinylet.LogFormat = "xml" }, "TinyletConfiguration.logFormat"},
		{"page's token", func(c *Config) { c.Tinylet.StatusPageTokenFile = "token" }, "TinyletConfiguration.statusPageTokenFile"},
		{"token of no page", func(c *Config) { c.Tinylet.StatusPage, c.Tinylet.StatusPageTokenFile = new(false), "/etc/token" }, "TinyletConfiguration.statusPage is false"},
		{"socket", func(c *Config) { c.Tinylet.SocketPath = "tinylet.sock" }, "TinyletConfiguration.socketPath"},
		{"long socket", func(c *Config) { c.Tinylet.SocketPath = "/" + strings.Repeat("a", 107) }, "TinyletConfiguration.socketPath"},
		{"short lease of a metered node", func(c *Config) { c.Tinylet.Metered, c.Kubelet.NodeLeaseDurationSeconds = true, 19 }, "nodeLeaseDurationSeconds is 19: it must be 20 or more if TinyletConfiguration.metered is true"},
		{"node name", func(c *Config) { c.NodeName = "rasp_berry" }, `the node name (--hostname-override, else the host's) is "rasp_berry"`},
		{"no node name", func(c *Config) { c.NodeName = "" }, "the node name"},
		{"cloud provider", func(c *Config) { c.CloudProvider = "aws" }, "--cloud-provider"},
		{"label of Kubernetes", func(c *Config) { c.NodeLabels = map[string]string{"node-role.kubernetes.io/edge": ""} }, "--node-labels"},
		{"label value", func(c *Config) { c.NodeLabels = map[string]string{"a": "b c"} }, "--node-labels a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, _ := mustBuild(t, nil, nil)
			tc.change(cfg)
			err := Validate(cfg)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error = %v, want %q", err, tc.want)
			}
		})
	}
}

func TestUnsafeSysctls(t *testing.T) {
	for _, tc := range []struct {
		pattern string
		valid   bool
	}{
		{"net.core.somaxconn", true},
		{"net/ipv4/conf/eth0.1/rp_filter", true},
		{"net.*", true},
		{"net.ipv4.*", true},
		{"kernel.msg*", true},
		{"kernel.shm*", true},
		{"kernel.sem", true},
		{"fs.mqueue.msg_max", true},
		{"", false},
		{"*", false},
		{"net", false},
		{"net*", false},
		{"net.*.rp_filter", false},
		{"net.Core", false},
		{"net..a", false},
		{"vm.swappiness", false},
		{"kernel.pid_max", false},
		{"kernel.semx", false},
		{"net." + strings.Repeat("a", 250), false},
	} {
		t.Run(tc.pattern, func(t *testing.T) {
			cfg, _ := mustBuild(t, nil, nil)
			cfg.Kubelet.AllowedUnsafeSysctls = []string{tc.pattern}
			if err := Validate(cfg); (err == nil) != tc.valid {
				t.Errorf("Validate: %v, want valid %v", err, tc.valid)
			}
		})
	}
}

func TestLogMaxBytes(t *testing.T) {
	for size, want := range map[string]int64{"10Mi": 10 << 20, "1k": 1000, "3Gi": 3 << 30, "-1": -1} {
		t.Run(size, func(t *testing.T) {
			cfg, _ := mustBuild(t, []string{"--container-log-max-size=" + size}, nil)
			if err := Validate(cfg); err != nil {
				t.Fatal(err)
			}
			if got := cfg.LogMaxBytes(); got != want {
				t.Errorf("LogMaxBytes = %d, want %d", got, want)
			}
		})
	}
}

func TestInvalidAddresses(t *testing.T) {
	for _, tc := range []struct {
		ip    string
		valid bool
	}{
		{"192.168.0.7", true},
		{"0.0.0.0", true},
		{"::", true},
		{"192.168.0.7,fd00::7", true},
		{"192.168.0.7,192.168.0.8", false},
		{"192.168.0.7,fd00::7,fd00::8", false},
		{"2001:db8::1%eth0", false},
		{"::ffff:192.0.2.1", true},
		{"::ffff:192.0.2.1,192.0.2.2", false},
		{"::ffff:192.0.2.1,fd00::7", true},
		{"127.0.0.1", false},
		{"169.254.1.1", false},
		{"224.0.0.1", false},
	} {
		t.Run(tc.ip, func(t *testing.T) {
			cfg, _ := mustBuild(t, []string{"--node-ip=" + tc.ip}, nil)
			if err := Validate(cfg); (err == nil) != tc.valid {
				t.Errorf("Validate: %v, want valid %v", err, tc.valid)
			}
		})
	}
	if _, _, err := newFlags(t, "--node-ip=board").build(nil, nil, hostname, 0); err == nil {
		t.Error("a name passes as an address")
	}
}

// Both errors must be reported, each on its own line.
func TestValidateJoins(t *testing.T) {
	cfg, _ := mustBuild(t, []string{"--max-pods=-1", "--port=0"}, nil)
	if err := Validate(cfg); err == nil || len(strings.Split(err.Error(), "\n")) != 2 {
		t.Errorf("error = %v, want two", err)
	}
}

// A URL may contain a password: no error may contain it.
func TestURLIsNotShown(t *testing.T) {
	cfg, _ := mustBuild(t, []string{"--manifest-url=ftp://user:secret@host/"}, nil)
	if err := Validate(cfg); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error = %v, want one without the URL", err)
	}
}
