package config

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
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
	fill(&tc.LogFormat, kc.Logging.Format)
	fill(&tc.SocketPath, DefaultSocketPath)
	fill(&tc.ObjectsFolder, DefaultObjectsFolder)
	fill(&tc.ImagesFolder, DefaultImagesFolder)
	fill(&tc.Journal, JournalAuto)
	point(&tc.MemoryQoS, true)
	point(&tc.OwnCgroup, true)
	point(&tc.StatusPage, !joined || tc.StatusPageTokenFile != "")
	setNetworkDefaults(&tc.Network)
}

// setDefaults sets the defaults of unset fields, to the values of
// pkg/kubelet/apis/config/v1beta1/defaults.go, with four exceptions.
// memoryReservationPolicy is None there. imagePullCredentialsVerificationPolicy is
// NeverVerifyPreloadedImages there, which is not implemented here. userNamespaces
// gets the default that its comment names. The hard eviction threshold of memory
// depends on the machine's memory, in bytes, 0 if not known; upstream's is a
// constant. setDefaults may be called again after a merge.
func setDefaults(kc *kubelet.KubeletConfiguration, memory int64) {
	kc.APIVersion, kc.Kind = kubeletAPIVersion, kubeletKind
	setSourceDefaults(kc)
	setServerDefaults(kc)
	setNodeDefaults(kc)
	setResourceDefaults(kc)
	setImageDefaults(kc)
	setEvictionDefaults(kc, memory)
	logsapi.SetRecommendedLoggingConfiguration(&kc.Logging)
}

func setSourceDefaults(kc *kubelet.KubeletConfiguration) {
	every(&kc.SyncFrequency, time.Minute)
	every(&kc.FileCheckFrequency, 20*time.Second)
	every(&kc.HTTPCheckFrequency, 20*time.Second)
	fill(&kc.ConfigMapAndSecretChangeDetectionStrategy, kubelet.WatchChangeDetectionStrategy)
	point(&kc.EnableControllerAttachDetach, true)
	fill(&kc.VolumePluginDir, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")
	every(&kc.VolumeStatsAggPeriod, time.Minute)
}

func setServerDefaults(kc *kubelet.KubeletConfiguration) {
	point(&kc.EnableServer, true)
	fill(&kc.Address, "0.0.0.0")
	fill(&kc.Port, 10250)
	fill(&kc.HealthzBindAddress, "127.0.0.1")
	point(&kc.HealthzPort, 10248)
	point(&kc.Authentication.Anonymous.Enabled, false)
	point(&kc.Authentication.Webhook.Enabled, true)
	every(&kc.Authentication.Webhook.CacheTTL, 2*time.Minute)
	fill(&kc.Authorization.Mode, kubelet.KubeletAuthorizationModeWebhook)
	every(&kc.Authorization.Webhook.CacheAuthorizedTTL, 5*time.Minute)
	every(&kc.Authorization.Webhook.CacheUnauthorizedTTL, 30*time.Second)
	every(&kc.StreamingConnectionIdleTimeout, 4*time.Hour)
	point(&kc.EnableDebuggingHandlers, true)
	point(&kc.EnableSystemLogHandler, true)
	point(&kc.EnableSystemLogQuery, false)
	point(&kc.EnableProfilingHandler, true)
	point(&kc.EnableDebugFlagsHandler, true)
}

func setNodeDefaults(kc *kubelet.KubeletConfiguration) {
	// If only the update frequency is set, the report frequency equals it.
	if kc.NodeStatusReportFrequency.Duration == 0 && kc.NodeStatusUpdateFrequency.Duration != 0 {
		kc.NodeStatusReportFrequency = kc.NodeStatusUpdateFrequency
	}
	every(&kc.NodeStatusReportFrequency, 5*time.Minute)
	every(&kc.NodeStatusUpdateFrequency, 10*time.Second)
	fill(&kc.NodeLeaseDurationSeconds, 40)
	point(&kc.NodeStatusMaxImages, 50)
	point(&kc.RegisterNode, true)
	point(&kc.EventRecordQPS, 50)
	fill(&kc.EventBurst, 100)
	point(&kc.KubeAPIQPS, 50)
	fill(&kc.KubeAPIBurst, 100)
	fill(&kc.ContentType, "application/vnd.kubernetes.protobuf")
	fill(&kc.HairpinMode, kubelet.PromiscuousBridge)
	point(&kc.MakeIPTablesUtilChains, true)
	point(&kc.IPTablesMasqueradeBit, 14)
	point(&kc.IPTablesDropBit, 15)
	point(&kc.ResolverConfig, "/etc/resolv.conf")
}

func setResourceDefaults(kc *kubelet.KubeletConfiguration) {
	fill(&kc.MaxPods, 110)
	if kc.PodPidsLimit != nil && *kc.PodPidsLimit < 0 {
		kc.PodPidsLimit = nil
	}
	point(&kc.PodPidsLimit, -1)
	fill(&kc.MaxOpenFiles, 1_000_000)
	point(&kc.OOMScoreAdj, -999)
	point(&kc.CgroupsPerQOS, true)
	fill(&kc.CgroupDriver, "cgroupfs")
	point(&kc.FailCgroupV1, true)
	point(&kc.FailSwapOn, true)
	point(&kc.CPUCFSQuota, true)
	point(&kc.CPUCFSQuotaPeriod, metav1.Duration{Duration: 100 * time.Millisecond})
	fill(&kc.CPUManagerPolicy, "none")
	every(&kc.CPUManagerReconcilePeriod, 10*time.Second)
	fill(&kc.MemoryManagerPolicy, kubelet.NoneMemoryManagerPolicy)
	fill(&kc.TopologyManagerPolicy, kubelet.NoneTopologyManagerPolicy)
	fill(&kc.TopologyManagerScope, kubelet.ContainerTopologyManagerScope)
	point(&kc.MemoryThrottlingFactor, 0.9)
	fill(&kc.MemoryReservationPolicy, kubelet.TieredReservationMemoryReservationPolicy)
	point(&kc.LocalStorageCapacityIsolation, true)
	point(&kc.SeccompDefault, false)
	point(&kc.UserNamespaces, kubelet.UserNamespaces{})
	point(&kc.UserNamespaces.IDsPerPod, idsUnit)
	if kc.EnforceNodeAllocatable == nil {
		kc.EnforceNodeAllocatable = []string{"pods"}
	}
}

func setImageDefaults(kc *kubelet.KubeletConfiguration) {
	fill(&kc.ContainerRuntimeEndpoint, "unix:///run/containerd/containerd.sock")
	every(&kc.RuntimeRequestTimeout, 2*time.Minute)
	point(&kc.RegistryPullQPS, 5)
	fill(&kc.RegistryBurst, 10)
	point(&kc.SerializeImagePulls, kc.MaxParallelImagePulls == nil || *kc.MaxParallelImagePulls < 2)
	fill(&kc.ImagePullCredentialsVerificationPolicy, kubelet.NeverVerify)
	every(&kc.ImageMinimumGCAge, 2*time.Minute)
	point(&kc.ImageGCHighThresholdPercent, 85)
	point(&kc.ImageGCLowThresholdPercent, 80)
	fill(&kc.PodLogsDir, "/var/log/pods")
	fill(&kc.ContainerLogMaxSize, "10Mi")
	point(&kc.ContainerLogMaxFiles, 5)
	point(&kc.ContainerLogMaxWorkers, 1)
	point(&kc.ContainerLogMonitorInterval, metav1.Duration{Duration: 10 * time.Second})
	point(&kc.CrashLoopBackOff.MaxContainerRestartPeriod, metav1.Duration{Duration: 300 * time.Second})
}

// setEvictionDefaults sets all hard thresholds if evictionHard is unset. With
// mergeDefaultEvictionSettings it sets each missing one (loadConfigFile in
// cmd/kubelet/app/server.go).
func setEvictionDefaults(kc *kubelet.KubeletConfiguration, memory int64) {
	every(&kc.EvictionPressureTransitionPeriod, 5*time.Minute)
	point(&kc.MergeDefaultEvictionSettings, false)
	if kc.EvictionHard != nil && !*kc.MergeDefaultEvictionSettings {
		return
	}
	merged := evictionapi.DefaultHard(memory)
	maps.Copy(merged, kc.EvictionHard)
	kc.EvictionHard = merged
}

// idsUnit is the unit of the number of user IDs of a pod (KEP-127).
const idsUnit = 65536

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func every(field *metav1.Duration, d time.Duration) { fill(&field.Duration, d) }

func point[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
