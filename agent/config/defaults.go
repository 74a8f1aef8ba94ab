package config

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

// Default returns the default configuration of a standalone node whose memory size
// is not known.
func Default() (kubelet.KubeletConfiguration, TinyletConfiguration) {
	var (
		kc kubelet.KubeletConfiguration
		tc TinyletConfiguration
	)
	setDefaults(&kc, 0)
	setTinyletDefaults(&tc, &kc, false)
	return kc, tc
}

// setTinyletDefaults sets the defaults of unset fields. joined means that the node
// is joined to a cluster. kc must have its defaults.
func setTinyletDefaults(tc *TinyletConfiguration, kc *kubelet.KubeletConfiguration, joined bool) {
	tc.APIVersion, tc.Kind = tinyletAPIVersion, tinyletKind
	setDefault(&tc.LogFormat, kc.Logging.Format)
	setDefault(&tc.SocketPath, DefaultSocketPath)
	setDefault(&tc.ObjectsFolder, DefaultObjectsFolder)
	setDefault(&tc.ImagesFolder, DefaultImagesFolder)
	setDefault(&tc.Journal, JournalAuto)
	setDefaultPointer(&tc.MemoryQoS, true)
	setDefaultPointer(&tc.OwnCgroup, true)
	setDefaultPointer(&tc.StatusPage, !joined || tc.StatusPageTokenFile != "")
	setDefault(&tc.Network.Bridge, DefaultBridge)
}

// setDefaults sets the defaults of unset fields, to the values of
// pkg/kubelet/apis/config/v1beta1/defaults.go, with four exceptions.
// memoryReservationPolicy is None there. imagePullCredentialsVerificationPolicy is
// NeverVerifyPreloadedImages there, which is not implemented here. userNamespaces
// gets the default that its comment names. The hard eviction threshold of memory
// depends on the machine's memory, in bytes, 0 if not known; upstream's is a
// constant. setDefaults may be called again after a merge.
func setDefaults(kc *kubelet.KubeletConfiguration, memory int64) {
	kc.APIVersion, kc.Kind = kubelet.APIVersion, kubelet.Kind
	setSourceDefaults(kc)
	setServerDefaults(kc)
	setNodeDefaults(kc)
	setResourceDefaults(kc)
	setImageDefaults(kc)
	setEvictionDefaults(kc, memory)
	setLoggingDefaults(&kc.Logging)
}

func setSourceDefaults(kc *kubelet.KubeletConfiguration) {
	setDefaultDuration(&kc.SyncFrequency, time.Minute)
	setDefaultDuration(&kc.FileCheckFrequency, 20*time.Second)
	setDefaultDuration(&kc.HTTPCheckFrequency, 20*time.Second)
	setDefault(&kc.ConfigMapAndSecretChangeDetectionStrategy, kubelet.WatchChangeDetectionStrategy)
	setDefaultPointer(&kc.EnableControllerAttachDetach, true)
	setDefault(&kc.VolumePluginDir, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")
	setDefaultDuration(&kc.VolumeStatsAggPeriod, time.Minute)
}

func setServerDefaults(kc *kubelet.KubeletConfiguration) {
	setDefaultPointer(&kc.EnableServer, true)
	setDefault(&kc.Address, "0.0.0.0")
	setDefault(&kc.Port, 10250)
	setDefault(&kc.HealthzBindAddress, "127.0.0.1")
	setDefaultPointer(&kc.HealthzPort, 10248)
	setDefaultPointer(&kc.Authentication.Anonymous.Enabled, false)
	setDefaultPointer(&kc.Authentication.Webhook.Enabled, true)
	setDefaultDuration(&kc.Authentication.Webhook.CacheTTL, 2*time.Minute)
	setDefault(&kc.Authorization.Mode, kubelet.KubeletAuthorizationModeWebhook)
	setDefaultDuration(&kc.Authorization.Webhook.CacheAuthorizedTTL, 5*time.Minute)
	setDefaultDuration(&kc.Authorization.Webhook.CacheUnauthorizedTTL, 30*time.Second)
	setDefaultDuration(&kc.StreamingConnectionIdleTimeout, 4*time.Hour)
	setDefaultPointer(&kc.EnableDebuggingHandlers, true)
	setDefaultPointer(&kc.EnableSystemLogHandler, true)
	setDefaultPointer(&kc.EnableSystemLogQuery, false)
	setDefaultPointer(&kc.EnableProfilingHandler, true)
	setDefaultPointer(&kc.EnableDebugFlagsHandler, true)
}

func setNodeDefaults(kc *kubelet.KubeletConfiguration) {
	// If only the update frequency is set, the report frequency equals it.
	if kc.NodeStatusReportFrequency.Duration == 0 && kc.NodeStatusUpdateFrequency.Duration != 0 {
		kc.NodeStatusReportFrequency = kc.NodeStatusUpdateFrequency
	}
	setDefaultDuration(&kc.NodeStatusReportFrequency, 5*time.Minute)
	setDefaultDuration(&kc.NodeStatusUpdateFrequency, 10*time.Second)
	setDefault(&kc.NodeLeaseDurationSeconds, 40)
	setDefaultPointer(&kc.NodeStatusMaxImages, 50)
	setDefaultPointer(&kc.RegisterNode, true)
	setDefaultPointer(&kc.EventRecordQPS, 50)
	setDefault(&kc.EventBurst, 100)
	setDefaultPointer(&kc.KubeAPIQPS, 50)
	setDefault(&kc.KubeAPIBurst, 100)
	setDefault(&kc.ContentType, "application/vnd.kubernetes.protobuf")
	setDefault(&kc.HairpinMode, kubelet.PromiscuousBridge)
	setDefaultPointer(&kc.MakeIPTablesUtilChains, true)
	setDefaultPointer(&kc.IPTablesMasqueradeBit, 14)
	setDefaultPointer(&kc.IPTablesDropBit, 15)
	setDefaultPointer(&kc.ResolverConfig, "/etc/resolv.conf")
}

func setResourceDefaults(kc *kubelet.KubeletConfiguration) {
	setDefault(&kc.MaxPods, 110)
	if kc.PodPidsLimit != nil && *kc.PodPidsLimit < 0 {
		kc.PodPidsLimit = nil
	}
	setDefaultPointer(&kc.PodPidsLimit, -1)
	setDefault(&kc.MaxOpenFiles, 1_000_000)
	setDefaultPointer(&kc.OOMScoreAdj, -999)
	setDefaultPointer(&kc.CgroupsPerQOS, true)
	setDefault(&kc.CgroupDriver, "cgroupfs")
	setDefaultPointer(&kc.FailCgroupV1, true)
	setDefaultPointer(&kc.FailSwapOn, true)
	setDefaultPointer(&kc.CPUCFSQuota, true)
	setDefaultPointer(&kc.CPUCFSQuotaPeriod, metav1.Duration{Duration: 100 * time.Millisecond})
	setDefault(&kc.CPUManagerPolicy, "none")
	setDefaultDuration(&kc.CPUManagerReconcilePeriod, 10*time.Second)
	setDefault(&kc.MemoryManagerPolicy, kubelet.NoneMemoryManagerPolicy)
	setDefault(&kc.TopologyManagerPolicy, kubelet.NoneTopologyManagerPolicy)
	setDefault(&kc.TopologyManagerScope, kubelet.ContainerTopologyManagerScope)
	setDefaultPointer(&kc.MemoryThrottlingFactor, 0.9)
	setDefault(&kc.MemoryReservationPolicy, kubelet.TieredReservationMemoryReservationPolicy)
	setDefaultPointer(&kc.LocalStorageCapacityIsolation, true)
	setDefaultPointer(&kc.SeccompDefault, false)
	setDefaultPointer(&kc.UserNamespaces, kubelet.UserNamespaces{})
	setDefaultPointer(&kc.UserNamespaces.IDsPerPod, userNamespaceUnit)
	if kc.EnforceNodeAllocatable == nil {
		kc.EnforceNodeAllocatable = []string{"pods"}
	}
}

func setImageDefaults(kc *kubelet.KubeletConfiguration) {
	setDefault(&kc.ContainerRuntimeEndpoint, DefaultRuntimeEndpoint)
	setDefaultDuration(&kc.RuntimeRequestTimeout, 2*time.Minute)
	setDefaultPointer(&kc.RegistryPullQPS, 5)
	setDefault(&kc.RegistryBurst, 10)
	setDefaultPointer(&kc.SerializeImagePulls, kc.MaxParallelImagePulls == nil || *kc.MaxParallelImagePulls < 2)
	setDefault(&kc.ImagePullCredentialsVerificationPolicy, kubelet.NeverVerify)
	setDefaultDuration(&kc.ImageMinimumGCAge, 2*time.Minute)
	setDefaultPointer(&kc.ImageGCHighThresholdPercent, 85)
	setDefaultPointer(&kc.ImageGCLowThresholdPercent, 80)
	setDefault(&kc.PodLogsDir, DefaultPodLogsDir)
	setDefault(&kc.ContainerLogMaxSize, "10Mi")
	setDefaultPointer(&kc.ContainerLogMaxFiles, 5)
	setDefaultPointer(&kc.ContainerLogMaxWorkers, 1)
	setDefaultPointer(&kc.ContainerLogMonitorInterval, metav1.Duration{Duration: 10 * time.Second})
	setDefaultPointer(&kc.CrashLoopBackOff.MaxContainerRestartPeriod, metav1.Duration{Duration: 300 * time.Second})
}

// setEvictionDefaults sets all hard thresholds if evictionHard is unset. With
// mergeDefaultEvictionSettings it sets each missing one (loadConfigFile in
// cmd/kubelet/app/server.go).
func setEvictionDefaults(kc *kubelet.KubeletConfiguration, memory int64) {
	setDefaultDuration(&kc.EvictionPressureTransitionPeriod, 5*time.Minute)
	setDefaultPointer(&kc.MergeDefaultEvictionSettings, false)
	if kc.EvictionHard != nil && !*kc.MergeDefaultEvictionSettings {
		return
	}
	merged := evictionapi.DefaultHard(memory)
	maps.Copy(merged, kc.EvictionHard)
	kc.EvictionHard = merged
}

func setLoggingDefaults(c *kubelet.LoggingConfiguration) {
	setDefault(&c.Format, LogText)
	if c.FlushFrequency.Duration.Duration == 0 {
		c.FlushFrequency.Duration.Duration, c.FlushFrequency.SerializeAsString = 5*time.Second, true
	}
	for _, size := range []*resource.QuantityValue{&c.Options.Text.InfoBufferSize, &c.Options.JSON.InfoBufferSize} {
		if *size == (resource.QuantityValue{}) {
			size.Quantity = *resource.NewQuantity(0, resource.DecimalSI)
			_ = size.String() // caches the text, so that equal values are deeply equal
		}
	}
}

// userNamespaceUnit is the unit of the number of user IDs of a pod (KEP-127).
const userNamespaceUnit = 65536

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func setDefaultDuration(field *metav1.Duration, d time.Duration) { setDefault(&field.Duration, d) }

func setDefaultPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
