package config

import (
	"log/slog"
	"slices"
	"strings"
)

// gateWarnings returns warnings about the given feature gates: those that the
// kubelet v1.36 does not have, which may be misspelled, and those whose value has
// no effect here. Gates that the kubelet does not read have no effect in the kubelet
// either, and cause no warning.
func gateWarnings(tc *TinyletConfiguration, gates map[string]bool) []Warning {
	if len(gates) == 0 {
		return nil
	}
	others := strings.Fields(otherGates)
	var warnings []Warning
	for name, on := range sorted(gates) {
		at := slices.IndexFunc(nodeGates, func(g Gate) bool { return g.Name == name })
		switch {
		case at < 0 && !slices.Contains(others, name):
			warnings = append(warnings, Warning{"unknown feature gate", []slog.Attr{slog.String("gate", name)}})
			continue
		case at < 0 || nodeGates[at].Honoured:
			continue
		}
		gate, remedy := nodeGates[at], leaveOut
		if name == gateMemoryQoS {
			gate.Effective, remedy = *tc.MemoryQoS, "set memoryQoS of TinyletConfiguration"
		}
		if on != gate.Effective {
			warnings = append(warnings, Warning{"feature gate has no effect", []slog.Attr{
				slog.String("gate", name), slog.Bool("value", on), slog.Bool("effective", gate.Effective), slog.String("remedy", remedy),
			}})
		}
	}
	return warnings
}

// Gate is a feature gate that the kubelet v1.36 reads.
type Gate struct {
	Name string
	// Default is the kubelet's default. Effective is the value in tinylet if the gate is
	// not set. Unless Honoured is true, it does not change (but see gateMemoryQoS).
	Default, Effective bool
	// Honoured means that the agent reads the gate: both values have an effect.
	Honoured bool
}

// gateMemoryQoS is the gate whose effective value is memoryQoS of
// TinyletConfiguration.
const gateMemoryQoS = "MemoryQoS"

const (
	off = false
	on  = true
)

// nodeGates are the gates that pkg/kubelet, pkg/volume, cmd/kubelet and
// component-base of v1.36 read on Linux, ordered by name.
var nodeGates = []Gate{
	{"AllAlpha", off, off, false},
	{"AllBeta", off, on, false},
	{"AllowDNSOnlyNodeCSR", off, off, false},
	{"CPUManagerPolicyAlphaOptions", off, off, false},
	{"CPUManagerPolicyBetaOptions", on, off, false},
	{"CPUManagerPolicyOptions", on, on, false},
	{"CRIListStreaming", off, off, false},
	{"CSIServiceAccountTokenSecrets", on, off, false},
	{"CSIVolumeHealth", off, off, false},
	{"ChangeContainerStatusOnKubeletRestart", off, off, false},
	{"ClusterTrustBundleProjection", off, on, false},
	{"ComponentFlagz", on, off, false},
	{"ComponentStatusz", on, off, false},
	{"ContainerCheckpoint", on, off, false},
	{"ContainerRestartRules", on, on, false},
	{"ContainerStopSignals", off, on, false},
	{"ContextualLogging", on, off, false},
	{"CustomCPUCFSQuotaPeriod", on, on, false},
	{"DRAExtendedResource", on, off, false},
	{"DRAWorkloadResourceClaims", off, off, false},
	{"DisableCPUQuotaWithExclusiveCPUs", on, on, true},
	{"DisableNodeKubeProxyVersion", on, on, false},
	{"DynamicResourceAllocation", on, off, false},
	{"EnvFiles", on, on, false},
	{"EventedPLEG", off, on, false},
	{"ExecProbeTimeout", on, on, false},
	{"ExtendWebSocketsToKubelet", on, off, false},
	{"GitRepoVolumeDriver", off, off, false},
	{"GracefulNodeShutdown", on, on, true},
	{"GracefulNodeShutdownBasedOnPodPriority", on, on, true},
	{"HostnameOverride", on, on, false},
	{"ImageMaximumGCAge", on, on, false},
	{"ImageVolume", on, on, false},
	{"ImageVolumeWithDigest", off, off, false},
	{"InPlacePodLevelResourcesVerticalScaling", on, on, false},
	{"InPlacePodVerticalScaling", on, on, false},
	{"InPlacePodVerticalScalingExclusiveCPUs", off, off, false},
	{"InPlacePodVerticalScalingExclusiveMemory", off, off, false},
	{"InPlacePodVerticalScalingInitContainers", on, on, false},
	{"KubeletCgroupDriverFromCRI", on, on, false},
	{"KubeletCrashLoopBackOffMax", on, on, false},
	{"KubeletEnsureSecretPulledImages", on, off, false},
	{"KubeletFineGrainedAuthz", on, on, false},
	{"KubeletInUserNamespace", off, off, false},
	{"KubeletPSI", on, on, false},
	{"KubeletPodResourcesDynamicResources", on, off, false},
	{"KubeletPodResourcesGet", on, off, false},
	{"KubeletPodResourcesListUseActivePods", on, off, false},
	{"KubeletRegistrationGetOnExistsOnly", off, on, false},
	{"KubeletSeparateDiskGC", on, on, false},
	{"KubeletServiceAccountTokenForCredentialProviders", on, off, false},
	{"KubeletTracing", on, off, false},
	{"LocalStorageCapacityIsolationFSQuotaMonitoring", off, off, false},
	{"LoggingAlphaOptions", off, off, false},
	{"LoggingBetaOptions", on, on, false},
	{gateMemoryQoS, off, on, false},
	{"MutableCSINodeAllocatableCount", on, off, false},
	{"NodeDeclaredFeatures", on, on, false},
	{"NodeLogQuery", on, off, false},
	{"NodeSwap", on, on, false},
	{"PLEGOnDemandRelist", on, on, false},
	{"PodAndContainerStatsFromCRI", off, off, false},
	{"PodCertificateRequest", off, off, false},
	{"PodLevelResourceManagers", off, off, false},
	{"PodLevelResources", on, on, false},
	{"PodLifecycleSleepAction", on, on, false},
	{"PodLogsQuerySplitStreams", off, on, false},
	{"PodObservedGenerationTracking", on, on, false},
	{"PodReadyToStartContainersCondition", on, on, false},
	{"PodsAPI", off, off, false},
	{"PreventStaticPodAPIReferences", on, off, false},
	{"QOSReserved", off, off, false},
	{"RecoverVolumeExpansionFailure", on, off, false},
	{"RecursiveReadOnlyMounts", on, on, false},
	{"ReduceDefaultCrashLoopBackOffDecay", off, off, false},
	{"ReloadKubeletClientCAFile", on, on, false},
	{"ReloadKubeletServerCertificateFile", on, on, false},
	{"ResourceHealthStatus", on, off, false},
	{"ResourceHealthStatusMessage", on, off, false},
	{"RestartAllContainersOnContainerExits", on, on, false},
	{"RotateKubeletServerCertificate", on, on, false},
	{"RuntimeClassInImageCriApi", off, off, false},
	{"SELinuxChangePolicy", on, off, false},
	{"SELinuxMount", off, off, false},
	{"SELinuxMountReadWriteOncePod", on, off, false},
	{"SupplementalGroupsPolicy", on, on, false},
	{"TaintTolerationComparisonOperators", off, off, false},
	{"TopologyManagerPolicyAlphaOptions", off, off, false},
	{"TopologyManagerPolicyBetaOptions", on, off, false},
	{"TopologyManagerPolicyOptions", on, off, false},
	{"UserNamespacesHostNetworkSupport", off, off, false},
	{"UserNamespacesSupport", on, on, false},
}

// otherGates are the further names that the kubelet v1.36 accepts: those of
// pkg/features, and of the features of k8s.io/apiserver, client-go, component-base and
// apiextensions-apiserver that are linked into it.
const otherGates = `
APIResponseCompression APIServerIdentity APIServerTracing APIServingWithRoutine
AggregatedDiscoveryRemoveBetaType AllowInsecureKubeletCertificateSigningRequests
AllowOverwriteTerminationGracePeriodSeconds AllowParsingUserUIDFromCertAuth AllowServiceExternalIPs
AllowUnsafeMalformedObjectDeletion AnonymousAuthConfigurableEndpoints AnyVolumeDataSource AtomicFIFO
AuthorizeNodeWithSelectors AuthorizePodWebsocketUpgradeCreatePermission AuthorizeWithSelectors
BtreeWatchCache CBORServingAndStorage CRDObservedGenerationTracking CRDValidationRatcheting
ClearingNominatedNodeNameAfterBinding ClientsAllowCARotation ClientsAllowCBOR ClientsAllowTLSCacheGC
ClientsPreferCBOR ClusterTrustBundle ConcurrentWatchObjectDecode ConsistentListFromCache
ConstrainedImpersonation CoordinatedLeaderElection CrossNamespaceVolumeDataSource
CustomResourceFieldSelectors DRAAdminAccess DRAConsumableCapacity DRADeviceBindingConditions
DRADeviceTaintRules DRADeviceTaints DRAListTypeAttributes DRANodeAllocatableResources
DRAPartitionableDevices DRAPrioritizedList DRAResourceClaimDeviceStatus
DRAResourceClaimGranularStatusAuthorization DRAResourcePoolStatus DRASchedulerFilterTimeout
DeclarativeValidation DeclarativeValidationBeta DeclarativeValidationTakeover
DeploymentReplicaSetTerminatingReplicas DetectCacheInconsistency DisableAllocatorDualWrite
ExternalServiceAccountTokenSigner GangScheduling GenericWorkload HPAConfigurableTolerance
HPAScaleToZero InOrderInformers InOrderInformersBatchProcess InformerResourceVersion
JobBackoffLimitPerIndex JobManagedBy JobPodReplacementPolicy JobSuccessPolicy KMSv1
ListFromCacheSnapshot LogarithmicScaleDown LoggingStableOptions ManifestBasedAdmissionControlConfig
MatchLabelKeysInPodAffinity MatchLabelKeysInPodTopologySpread
MatchLabelKeysInPodTopologySpreadSelectorMerge MaxUnavailableStatefulSet MultiCIDRServiceAllocator
MutablePVNodeAffinity MutablePodResourcesForSuspendedJobs
MutableSchedulingDirectivesForSuspendedJobs MutatingAdmissionPolicy NFTablesProxyMode
NativeHistograms NodeInclusionPolicyInPodTopologySpread NominatedNodeNameForExpectation OpenAPIEnums
OpportunisticBatching OrderedNamespaceDeletion PersistentVolumeClaimUnusedSinceTime PodDeletionCost
PodLifecycleSleepActionAllowZero PodSchedulingReadiness PodTopologyLabelsAdmission
PortForwardWebsockets PreferSameTrafficDistribution ProcMountType RelaxedDNSSearchValidation
RelaxedEnvironmentVariableValidation RelaxedServiceNameValidation RemoteRequestHeaderUID
ResilientWatchCacheInitialization RetryGenerateName SchedulerAsyncAPICalls SchedulerAsyncPreemption
SchedulerPopFromBackoffQ SchedulerQueueingHints SeparateCacheWatchRPC
SeparateTaintEvictionController ServiceAccountNodeAudienceRestriction ServiceAccountTokenJTI
ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation
ServiceAccountTokenPodNodeInfo ServiceCIDRStatusFieldWiping ShardedListAndWatch SidecarContainers
SizeBasedListCostEstimate StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob
StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet
StatefulSetSemanticRevisionComparison StorageCapacityScoring StorageNamespaceIndex StorageVersionAPI
StorageVersionHash StorageVersionMigrator StreamingCollectionEncodingToJSON
StreamingCollectionEncodingToProtobuf StrictIPCIDRValidation StructuredAuthenticationConfiguration
StructuredAuthenticationConfigurationEgressSelector StructuredAuthenticationConfigurationJWKSMetrics
TokenRequestServiceAccountUIDValidation TopologyAwareWorkloadScheduling
TranslateStreamCloseWebsocketRequests UnauthenticatedHTTP2DOSMitigation
UnknownVersionInteroperabilityProxy UnlockWhileProcessingFIFO VolumeAttributesClass
VolumeLimitScaling WatchCacheInitializationPostStartHook WatchList WatchListClient WinDSR WinOverlay
WindowsCPUAndMemoryAffinity WindowsGracefulNodeShutdown WindowsHostNetwork WorkloadAwarePreemption
WorkloadWithJob
`
