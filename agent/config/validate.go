package config

import (
	"fmt"
	"math"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/net/http/httpguts"
	"k8s.io/apimachinery/pkg/api/resource"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

// Validate returns all errors in cfg, joined: settings that are out of their limits
// (pkg/kubelet/apis/config/validation) or that tinylet does not support. cfg must
// be a result of Load or have all its defaults set.
func Validate(cfg *Config) error {
	c := &checker{}
	kc := &cfg.Kubelet
	c.sources(kc)
	c.runtime(kc)
	c.servers(kc)
	c.network(kc)
	c.logs(kc)
	c.images(kc)
	c.limits(kc)
	c.managers(kc)
	c.eviction(kc)
	c.reservations(kc)
	c.shutdown(kc)
	c.apiClient(kc)
	c.tinylet(&cfg.Tinylet)
	c.podNetwork(cfg)
	c.metered(cfg)
	c.node(cfg)
	return c.err()
}

func (c *checker) sources(kc *kubelet.KubeletConfiguration) {
	c.durationAtLeast("syncFrequency", kc.SyncFrequency.Duration, time.Millisecond)
	c.durationAtLeast("fileCheckFrequency", kc.FileCheckFrequency.Duration, time.Millisecond)
	c.durationAtLeast("httpCheckFrequency", kc.HTTPCheckFrequency.Duration, time.Millisecond)
	if kc.StaticPodURL != "" {
		u, err := url.Parse(kc.StaticPodURL)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			// The URL may contain a password.
			c.invalid("staticPodURL", "unusable", "a URL http://HOST/PATH or https://HOST/PATH")
		}
	}
	for name, values := range sorted(kc.StaticPodURLHeader) {
		if !httpguts.ValidHeaderFieldName(name) {
			c.invalid("staticPodURLHeader", name, "the name of an HTTP header")
		}
		for _, value := range values {
			if !httpguts.ValidHeaderFieldValue(value) {
				c.invalid("staticPodURLHeader["+name+"]", "unprintable", "text in one line")
			}
		}
	}
	if kc.RunOnce {
		c.invalid("runOnce", true, "false: that mode is not supported")
	}
}

func (c *checker) runtime(kc *kubelet.KubeletConfiguration) {
	c.endpoint("containerRuntimeEndpoint", kc.ContainerRuntimeEndpoint)
	if kc.ImageServiceEndpoint != kc.ContainerRuntimeEndpoint {
		c.endpoint("imageServiceEndpoint", kc.ImageServiceEndpoint)
	}
	c.durationAtLeast("runtimeRequestTimeout", kc.RuntimeRequestTimeout.Duration, time.Millisecond)
	c.oneOf("cgroupDriver", kc.CgroupDriver, "cgroupfs", "systemd")
	notASCII := func(r rune) bool { return r > unicode.MaxASCII }
	if dir := kc.PodLogsDir; !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || strings.ContainsFunc(dir, notASCII) {
		c.invalid("podLogsDir", dir, "an absolute path of ASCII characters, without . and ..")
	}
}

func (c *checker) endpoint(path, value string) {
	socket, ok := strings.CutPrefix(value, "unix://")
	if !ok || !filepath.IsAbs(socket) || len(filepath.Clean(socket)) > MaxSocketPath {
		c.invalid(path, value, fmt.Sprintf("the address of a socket with a path of at most %d bytes, such as unix:///run/containerd/containerd.sock", MaxSocketPath))
	}
}

func (c *checker) servers(kc *kubelet.KubeletConfiguration) {
	c.address("address", kc.Address)
	c.between("port", int64(kc.Port), 1, 65535)
	c.between("readOnlyPort", int64(kc.ReadOnlyPort), 0, 65535)
	c.address("healthzBindAddress", kc.HealthzBindAddress)
	c.between("healthzPort", int64(*kc.HealthzPort), 0, 65535)
	c.durationAtLeast("streamingConnectionIdleTimeout", kc.StreamingConnectionIdleTimeout.Duration, 0)
	c.durationAtLeast("authentication.webhook.cacheTTL", kc.Authentication.Webhook.CacheTTL.Duration, 0)
	c.durationAtLeast("authorization.webhook.cacheAuthorizedTTL", kc.Authorization.Webhook.CacheAuthorizedTTL.Duration, 0)
	c.durationAtLeast("authorization.webhook.cacheUnauthorizedTTL", kc.Authorization.Webhook.CacheUnauthorizedTTL.Duration, 0)
	c.oneOf("authorization.mode", string(kc.Authorization.Mode),
		string(kubelet.KubeletAuthorizationModeWebhook), string(kubelet.KubeletAuthorizationModeAlwaysAllow))
	c.oneOf("tlsMinVersion", kc.TLSMinVersion, "", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13")
	for _, name := range kc.TLSCipherSuites {
		if _, _, ok := CipherSuite(name); !ok {
			c.invalid("tlsCipherSuites", name, "the name of a cipher suite of Go's crypto/tls")
		}
	}
	for _, curve := range kc.TLSCurvePreferences {
		c.between("tlsCurvePreferences", int64(curve), 1, math.MaxUint16)
	}
	if (kc.TLSCertFile == "") != (kc.TLSPrivateKeyFile == "") {
		c.invalid("tlsCertFile", kc.TLSCertFile, "set together with tlsPrivateKeyFile")
	}
}

func (c *checker) address(path, value string) {
	if _, err := netip.ParseAddr(value); err != nil {
		c.invalid(path, value, "an IP address")
	}
}

func (c *checker) network(kc *kubelet.KubeletConfiguration) {
	for _, server := range kc.ClusterDNS {
		c.address("clusterDNS", server)
	}
	c.oneOf("hairpinMode", kc.HairpinMode, kubelet.PromiscuousBridge, kubelet.HairpinVeth, kubelet.HairpinNone)
	c.between("iptablesMasqueradeBit", int64(*kc.IPTablesMasqueradeBit), 0, 31)
	c.between("iptablesDropBit", int64(*kc.IPTablesDropBit), 0, 31)
}

func (c *checker) logs(kc *kubelet.KubeletConfiguration) {
	c.oneOf("logging.format", kc.Logging.Format, LogText, LogJSON)
	c.between("logging.verbosity", int64(kc.Logging.Verbosity), 0, math.MaxInt32)
	// A negative size disables the rotation.
	if q, err := resource.ParseQuantity(kc.ContainerLogMaxSize); err != nil || q.IsZero() {
		c.invalid("containerLogMaxSize", kc.ContainerLogMaxSize, "a quantity such as 10Mi, or a negative one to disable rotation")
	}
	c.atLeast("containerLogMaxFiles", int64(*kc.ContainerLogMaxFiles), 2)
	c.atLeast("containerLogMaxWorkers", int64(*kc.ContainerLogMaxWorkers), 1)
	c.durationAtLeast("containerLogMonitorInterval", kc.ContainerLogMonitorInterval.Duration, 3*time.Second)
}

func (c *checker) images(kc *kubelet.KubeletConfiguration) {
	high, low := *kc.ImageGCHighThresholdPercent, *kc.ImageGCLowThresholdPercent
	c.between("imageGCHighThresholdPercent", int64(high), 0, 100)
	c.between("imageGCLowThresholdPercent", int64(low), 0, 100)
	if low >= high {
		c.invalid("imageGCLowThresholdPercent", low, "below imageGCHighThresholdPercent")
	}
	minAge, maxAge := kc.ImageMinimumGCAge.Duration, kc.ImageMaximumGCAge.Duration
	c.durationAtLeast("imageMinimumGCAge", minAge, 0)
	if maxAge != 0 && maxAge <= minAge {
		c.invalid("imageMaximumGCAge", maxAge, "0s or longer than imageMinimumGCAge")
	}
	c.atLeast("registryPullQPS", int64(*kc.RegistryPullQPS), 0)
	c.atLeast("registryBurst", int64(kc.RegistryBurst), 0)
	if parallel := kc.MaxParallelImagePulls; parallel != nil {
		c.atLeast("maxParallelImagePulls", int64(*parallel), 1)
		if *kc.SerializeImagePulls && *parallel > 1 {
			c.invalid("maxParallelImagePulls", *parallel, "1 unless serializeImagePulls is false")
		}
	}
	c.oneOf("imagePullCredentialsVerificationPolicy", string(kc.ImagePullCredentialsVerificationPolicy),
		string(kubelet.NeverVerify), string(kubelet.NeverVerifyPreloadedImages),
		string(kubelet.NeverVerifyAllowlistedImages), string(kubelet.AlwaysVerify))
	if len(kc.PreloadedImagesVerificationAllowlist) > 0 && kc.ImagePullCredentialsVerificationPolicy != kubelet.NeverVerifyAllowlistedImages {
		c.invalid("preloadedImagesVerificationAllowlist", "set", "absent unless imagePullCredentialsVerificationPolicy is "+string(kubelet.NeverVerifyAllowlistedImages))
	}
}

func (c *checker) limits(kc *kubelet.KubeletConfiguration) {
	c.atLeast("maxPods", int64(kc.MaxPods), 0)
	c.atLeast("podsPerCore", int64(kc.PodsPerCore), 0)
	c.atLeast("podPidsLimit", *kc.PodPidsLimit, -1)
	c.atLeast("maxOpenFiles", kc.MaxOpenFiles, 0)
	c.between("oomScoreAdj", int64(*kc.OOMScoreAdj), -1000, 1000)
	if d := kc.CPUCFSQuotaPeriod.Duration; d < time.Millisecond || d > time.Second {
		c.invalid("cpuCFSQuotaPeriod", d, "between 1ms and 1s")
	}
	if d := kc.CrashLoopBackOff.MaxContainerRestartPeriod.Duration; d < time.Second || d > 300*time.Second {
		c.invalid("crashLoopBackOff.maxContainerRestartPeriod", d, "between 1s and 5m0s")
	}
	c.oneOf("memorySwap.swapBehavior", kc.MemorySwap.SwapBehavior, "", "NoSwap", "LimitedSwap")
	if f := *kc.MemoryThrottlingFactor; !(f > 0 && f <= 1) {
		c.invalid("memoryThrottlingFactor", f, "above 0 and at most 1")
	}
	c.oneOf("memoryReservationPolicy", string(kc.MemoryReservationPolicy),
		string(kubelet.NoneMemoryReservationPolicy), string(kubelet.TieredReservationMemoryReservationPolicy))
	if n := *kc.UserNamespaces.IDsPerPod; n < userNamespaceUnit || n > math.MaxUint32 || n%userNamespaceUnit != 0 {
		c.invalid("userNamespaces.idsPerPod", n, "a multiple of 65536 below 4294967296")
	}
	for _, pattern := range kc.AllowedUnsafeSysctls {
		c.sysctl("allowedUnsafeSysctls", pattern)
	}
}

// sysctlPattern matches a sysctl name, whose segments are separated by dots or
// slashes, or a prefix with a star at its end.
var sysctlPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]$`)
})

// maxSysctl bounds a sysctl's name, in bytes
// (pkg/apis/core/validation: SysctlMaxLength).
const maxSysctl = 253

// namespaced are the namespaced sysctls that the kubelet allows
// (k8s.io/component-helpers/node/util/sysctl). An entry with a trailing dot is a prefix.
var namespaced = []string{
	"kernel.sem", "kernel.shm", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
	"kernel.msg", "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "net.", "fs.mqueue.",
}

// sysctl checks that a name, or a pattern with a star at its end, matches namespaced
// sysctls only.
func (c *checker) sysctl(path, pattern string) {
	name := strings.ReplaceAll(strings.TrimSuffix(pattern, "*"), "/", ".")
	known := slices.ContainsFunc(namespaced, func(group string) bool {
		return name == group || (strings.HasSuffix(group, ".") && strings.HasPrefix(name, group))
	})
	if !known || len(pattern) > maxSysctl || !sysctlPattern().MatchString(pattern) {
		c.invalid(path, pattern, "a namespaced sysctl such as net.core.somaxconn, or a pattern such as kernel.msg*")
	}
}

func (c *checker) managers(kc *kubelet.KubeletConfiguration) {
	c.cpus(kc)
	c.oneOf("memoryManagerPolicy", kc.MemoryManagerPolicy,
		kubelet.NoneMemoryManagerPolicy, kubelet.StaticMemoryManagerPolicy)
	c.oneOf("topologyManagerPolicy", kc.TopologyManagerPolicy,
		kubelet.NoneTopologyManagerPolicy, kubelet.BestEffortTopologyManagerPolicy,
		kubelet.RestrictedTopologyManagerPolicy, kubelet.SingleNumaNodeTopologyManagerPolicy)
	c.oneOf("topologyManagerScope", kc.TopologyManagerScope,
		kubelet.ContainerTopologyManagerScope, kubelet.PodTopologyManagerScope)
	c.oneOf("configMapAndSecretChangeDetectionStrategy", string(kc.ConfigMapAndSecretChangeDetectionStrategy),
		string(kubelet.GetChangeDetectionStrategy), string(kubelet.TTLCacheChangeDetectionStrategy),
		string(kubelet.WatchChangeDetectionStrategy))
}

// cpuList matches the kernel's list format (cpuset(7)). Whether the machine has
// the CPUs is checked when the agent starts.
var cpuList = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$`)
})

// staticCPUPolicy is the value of cpuManagerPolicy with which containers can have exclusive
// CPUs.
const staticCPUPolicy = "static"

func (c *checker) cpus(kc *kubelet.KubeletConfiguration) {
	c.oneOf("cpuManagerPolicy", kc.CPUManagerPolicy, "none", staticCPUPolicy)
	if len(kc.CPUManagerPolicyOptions) > 0 && kc.CPUManagerPolicy != staticCPUPolicy {
		c.invalid("cpuManagerPolicyOptions", "set", "absent unless cpuManagerPolicy is "+staticCPUPolicy)
	}
	if kc.ReservedSystemCPUs != "" {
		if !cpuList().MatchString(kc.ReservedSystemCPUs) {
			c.invalid("reservedSystemCPUs", kc.ReservedSystemCPUs, "a list of CPUs such as 0-1,3")
		}
		if kc.SystemReservedCgroup != "" || kc.KubeReservedCgroup != "" {
			c.invalid("reservedSystemCPUs", kc.ReservedSystemCPUs, "empty if systemReservedCgroup or kubeReservedCgroup is set")
		}
	} else if kc.CPUManagerPolicy == staticCPUPolicy && !reservesCPU(kc) {
		c.invalid("cpuManagerPolicy", staticCPUPolicy, "none if no CPU is reserved for the system: set reservedSystemCPUs, or cpu in kubeReserved or systemReserved")
	}
}

// reservesCPU reports whether the reservations include CPU. It returns true for an
// invalid quantity, which c.reserved reports.
func reservesCPU(kc *kubelet.KubeletConfiguration) bool {
	for _, reserved := range []map[string]string{kc.KubeReserved, kc.SystemReserved} {
		text, set := reserved["cpu"]
		if !set {
			continue
		}
		if q, err := resource.ParseQuantity(text); err != nil || q.Sign() > 0 {
			return true
		}
	}
	return false
}

func (c *checker) shutdown(kc *kubelet.KubeletConfiguration) {
	total, critical := kc.ShutdownGracePeriod.Duration, kc.ShutdownGracePeriodCriticalPods.Duration
	c.zeroOrDurationAtLeast("shutdownGracePeriod", total, time.Second)
	c.zeroOrDurationAtLeast("shutdownGracePeriodCriticalPods", critical, time.Second)
	if critical > total {
		c.invalid("shutdownGracePeriodCriticalPods", critical, "at most shutdownGracePeriod")
	}
	if len(kc.ShutdownGracePeriodByPodPriority) > 0 && (total != 0 || critical != 0) {
		c.invalid("shutdownGracePeriodByPodPriority", "set", "absent if shutdownGracePeriod is set")
	}
}

func (c *checker) apiClient(kc *kubelet.KubeletConfiguration) {
	c.durationAtLeast("nodeStatusUpdateFrequency", kc.NodeStatusUpdateFrequency.Duration, time.Millisecond)
	c.durationAtLeast("nodeStatusReportFrequency", kc.NodeStatusReportFrequency.Duration, time.Millisecond)
	c.atLeast("nodeLeaseDurationSeconds", int64(kc.NodeLeaseDurationSeconds), 1)
	c.atLeast("nodeStatusMaxImages", int64(*kc.NodeStatusMaxImages), -1)
	c.atLeast("eventRecordQPS", int64(*kc.EventRecordQPS), 0)
	c.atLeast("eventBurst", int64(kc.EventBurst), 0)
	c.atLeast("kubeAPIQPS", int64(*kc.KubeAPIQPS), 0)
	c.atLeast("kubeAPIBurst", int64(kc.KubeAPIBurst), 0)
}

func (c *checker) metered(cfg *Config) {
	if lease := cfg.Kubelet.NodeLeaseDurationSeconds; cfg.Tinylet.Metered && lease < minMeteredLease {
		c.invalid("nodeLeaseDurationSeconds", lease, fmt.Sprintf("%d or more if %s.metered is true", minMeteredLease, tinyletKind))
	}
}

// MaxSocketPath is the longest path, in bytes, that fits into sockaddr_un with its
// terminating NUL (unix(7)).
const MaxSocketPath = 107

func (c *checker) tinylet(tc *TinyletConfiguration) {
	c.oneOf(tinyletKind+".logFormat", tc.LogFormat, LogText, LogJSON)
	c.absolute(tinyletKind+".objectsFolder", tc.ObjectsFolder)
	c.absolute(tinyletKind+".imagesFolder", tc.ImagesFolder)
	c.absolute(tinyletKind+".enrolKubeconfig", tc.EnrolKubeconfig)
	c.absolute(tinyletKind+".journalKeyFile", tc.JournalKeyFile)
	c.absolute(tinyletKind+".journalKeyTPMFile", tc.JournalKeyTPMFile)
	c.absolute(tinyletKind+".statusPageTokenFile", tc.StatusPageTokenFile)
	if tc.StatusPageTokenFile != "" && !*tc.StatusPage {
		c.invalid(tinyletKind+".statusPageTokenFile", tc.StatusPageTokenFile, "empty if "+tinyletKind+".statusPage is false")
	}
	c.oneOf(tinyletKind+".journal", tc.Journal, JournalAuto, JournalSealed, JournalOff)
	c.journalKey(tc)
	if !filepath.IsAbs(tc.SocketPath) || len(tc.SocketPath) > MaxSocketPath {
		c.invalid(tinyletKind+".socketPath", tc.SocketPath, fmt.Sprintf("an absolute path of at most %d bytes", MaxSocketPath))
	}
}

// maxKeyring is the longest description of a key (add_key(2)).
const maxKeyring = 4095

func (c *checker) journalKey(tc *TinyletConfiguration) {
	if len(tc.JournalKeyring) > maxKeyring || strings.ContainsRune(tc.JournalKeyring, 0) {
		c.invalid(tinyletKind+".journalKeyring", tc.JournalKeyring, "a key's description of at most 4095 bytes")
	}
	first := ""
	for _, key := range []struct{ name, value string }{
		{".journalKeyFile", tc.JournalKeyFile}, {".journalKeyTPMFile", tc.JournalKeyTPMFile}, {".journalKeyring", tc.JournalKeyring},
	} {
		switch {
		case key.value == "":
		case tc.Journal == JournalOff:
			c.invalid(tinyletKind+key.name, key.value, "empty if "+tinyletKind+".journal is "+JournalOff)
		case first == "":
			first = key.name
		default:
			c.invalid(tinyletKind+key.name, key.value, "empty if "+tinyletKind+first+" is set: the journal has one key")
		}
	}
}
