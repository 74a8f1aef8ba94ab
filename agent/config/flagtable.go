package config

// boundFlag is a kubelet flag that sets a field of KubeletConfiguration.
type boundFlag struct {
	name  string
	field string // its JSON path
	form  form
	usage string // help, if the field's name is not enough
}

// form is the syntax of a flag's text, for field types that have several.
type form uint8

const (
	plain    form = iota
	lessThan      // signal<quantity,signal<quantity
	onePair       // key=value; the value may contain commas
)

// boundFlags is cmd/kubelet/app/options/options.go, AddKubeletConfigFlags,
// and the logging flags of k8s.io/component-base/logs/api/v1.
var boundFlags = []boundFlag{
	{name: "address", field: "address"},
	{name: "allowed-unsafe-sysctls", field: "allowedUnsafeSysctls"},
	{name: "anonymous-auth", field: "authentication.anonymous.enabled"},
	{name: "authentication-token-webhook", field: "authentication.webhook.enabled"},
	{name: "authentication-token-webhook-cache-ttl", field: "authentication.webhook.cacheTTL"},
	{name: "authorization-mode", field: "authorization.mode"},
	{name: "authorization-webhook-cache-authorized-ttl", field: "authorization.webhook.cacheAuthorizedTTL"},
	{name: "authorization-webhook-cache-unauthorized-ttl", field: "authorization.webhook.cacheUnauthorizedTTL"},
	{name: "cgroup-driver", field: "cgroupDriver"},
	{name: "cgroup-root", field: "cgroupRoot"},
	{name: "cgroups-per-qos", field: "cgroupsPerQOS"},
	{name: "client-ca-file", field: "authentication.x509.clientCAFile"},
	{name: "cluster-dns", field: "clusterDNS"},
	{name: "cluster-domain", field: "clusterDomain"},
	{name: "container-log-max-files", field: "containerLogMaxFiles"},
	{name: "container-log-max-size", field: "containerLogMaxSize"},
	{name: "container-runtime-endpoint", field: "containerRuntimeEndpoint", usage: "`address` of the container runtime's socket"},
	{name: "contention-profiling", field: "enableContentionProfiling"},
	{name: "cpu-cfs-quota", field: "cpuCFSQuota"},
	{name: "cpu-cfs-quota-period", field: "cpuCFSQuotaPeriod"},
	{name: "cpu-manager-policy", field: "cpuManagerPolicy"},
	{name: "cpu-manager-policy-options", field: "cpuManagerPolicyOptions", form: onePair},
	{name: "cpu-manager-reconcile-period", field: "cpuManagerReconcilePeriod"},
	{name: "enable-controller-attach-detach", field: "enableControllerAttachDetach"},
	{name: "enable-debugging-handlers", field: "enableDebuggingHandlers"},
	{name: "enable-server", field: "enableServer"},
	{name: "enforce-node-allocatable", field: "enforceNodeAllocatable"},
	{name: "event-burst", field: "eventBurst"},
	{name: "event-qps", field: "eventRecordQPS"},
	{name: "eviction-hard", field: "evictionHard", form: lessThan},
	{name: "eviction-max-pod-grace-period", field: "evictionMaxPodGracePeriod"},
	{name: "eviction-minimum-reclaim", field: "evictionMinimumReclaim"},
	{name: "eviction-pressure-transition-period", field: "evictionPressureTransitionPeriod"},
	{name: "eviction-soft", field: "evictionSoft", form: lessThan},
	{name: "eviction-soft-grace-period", field: "evictionSoftGracePeriod"},
	{name: "fail-cgroupv1", field: "failCgroupV1"},
	{name: "fail-swap-on", field: "failSwapOn"},
	{name: "feature-gates", field: "featureGates"},
	{name: "file-check-frequency", field: "fileCheckFrequency"},
	{name: "hairpin-mode", field: "hairpinMode"},
	{name: "healthz-bind-address", field: "healthzBindAddress"},
	{name: "healthz-port", field: "healthzPort"},
	{name: "http-check-frequency", field: "httpCheckFrequency"},
	{name: "image-gc-high-threshold", field: "imageGCHighThresholdPercent"},
	{name: "image-gc-low-threshold", field: "imageGCLowThresholdPercent"},
	{name: "image-service-endpoint", field: "imageServiceEndpoint"},
	{name: "kernel-memcg-notification", field: "kernelMemcgNotification"},
	{name: "kube-api-burst", field: "kubeAPIBurst"},
	{name: "kube-api-content-type", field: "contentType"},
	{name: "kube-api-qps", field: "kubeAPIQPS"},
	{name: "kube-reserved", field: "kubeReserved"},
	{name: "kube-reserved-cgroup", field: "kubeReservedCgroup"},
	{name: "kubelet-cgroups", field: "kubeletCgroups"},
	{name: "local-storage-capacity-isolation", field: "localStorageCapacityIsolation"},
	{name: "log-flush-frequency", field: "logging.flushFrequency"},
	{name: "log-json-info-buffer-size", field: "logging.options.json.infoBufferSize"},
	{name: "log-json-split-stream", field: "logging.options.json.splitStream"},
	{name: "log-text-info-buffer-size", field: "logging.options.text.infoBufferSize"},
	{name: "log-text-split-stream", field: "logging.options.text.splitStream"},
	{name: "logging-format", field: "logging.format", usage: "text or json"},
	{name: "make-iptables-util-chains", field: "makeIPTablesUtilChains"},
	{name: "manifest-url", field: "staticPodURL"},
	{name: "manifest-url-header", field: "staticPodURLHeader"},
	{name: "max-open-files", field: "maxOpenFiles"},
	{name: "max-pods", field: "maxPods"},
	{name: "memory-manager-policy", field: "memoryManagerPolicy"},
	{name: "minimum-image-ttl-duration", field: "imageMinimumGCAge"},
	{name: "node-status-max-images", field: "nodeStatusMaxImages"},
	{name: "node-status-update-frequency", field: "nodeStatusUpdateFrequency"},
	{name: "oom-score-adj", field: "oomScoreAdj"},
	{name: "pod-cidr", field: "podCIDR"},
	{name: "pod-manifest-path", field: "staticPodPath", usage: "`path` of a directory or file of static pod manifests"},
	{name: "pod-max-pids", field: "podPidsLimit"},
	{name: "pods-per-core", field: "podsPerCore"},
	{name: "port", field: "port"},
	{name: "protect-kernel-defaults", field: "protectKernelDefaults"},
	{name: "provider-id", field: "providerID"},
	{name: "qos-reserved", field: "qosReserved"},
	{name: "read-only-port", field: "readOnlyPort"},
	{name: "register-node", field: "registerNode"},
	{name: "register-with-taints", field: "registerWithTaints"},
	{name: "registry-burst", field: "registryBurst"},
	{name: "registry-qps", field: "registryPullQPS"},
	{name: "reserved-cpus", field: "reservedSystemCPUs"},
	{name: "reserved-memory", field: "reservedMemory"},
	{name: "resolv-conf", field: "resolvConf"},
	{name: "rotate-certificates", field: "rotateCertificates"},
	{name: "rotate-server-certificates", field: "serverTLSBootstrap"},
	{name: "runonce", field: "runOnce"},
	{name: "runtime-request-timeout", field: "runtimeRequestTimeout"},
	{name: "seccomp-default", field: "seccompDefault"},
	{name: "serialize-image-pulls", field: "serializeImagePulls"},
	{name: "streaming-connection-idle-timeout", field: "streamingConnectionIdleTimeout"},
	{name: "sync-frequency", field: "syncFrequency"},
	{name: "system-cgroups", field: "systemCgroups"},
	{name: "system-reserved", field: "systemReserved"},
	{name: "system-reserved-cgroup", field: "systemReservedCgroup"},
	{name: "tls-cert-file", field: "tlsCertFile"},
	{name: "tls-cipher-suites", field: "tlsCipherSuites"},
	{name: "tls-min-version", field: "tlsMinVersion"},
	{name: "tls-private-key-file", field: "tlsPrivateKeyFile"},
	{name: "topology-manager-policy", field: "topologyManagerPolicy"},
	{name: "topology-manager-policy-options", field: "topologyManagerPolicyOptions"},
	{name: "topology-manager-scope", field: "topologyManagerScope"},
	{name: "v", field: "logging.verbosity", usage: "log verbosity `level`; 4 and above log debug messages"},
	{name: "vmodule", field: "logging.vmodule"},
	{name: "volume-plugin-dir", field: "volumePluginDir"},
	{name: "volume-stats-agg-period", field: "volumeStatsAggPeriod"},
}

// ignoredFlag is a kubelet flag without a field and without effect. Its text must
// still be valid for its type.
type ignoredFlag struct {
	name string
	kind any // a value of the flag's type
	why  string
}

const (
	noCadvisor     = "statistics come from cgroup files"
	noDeadLimits   = "the last terminated attempt of each container is kept"
	notImplemented = "not implemented"
)

// ignoredFlags is cmd/kubelet/app/options/{options,globalflags_linux}.go.
var ignoredFlags = []ignoredFlag{
	{"application-metrics-count-limit", 0, noCadvisor},
	{"boot-id-file", "", noCadvisor},
	{"container-hints", "", noCadvisor},
	{"containerd", "", noCadvisor},
	{"containerd-namespace", "", noCadvisor},
	{"enable-load-reader", false, noCadvisor},
	{"event-storage-age-limit", "", noCadvisor},
	{"event-storage-event-limit", "", noCadvisor},
	{"exit-on-lock-contention", false, "there is no lock file"},
	{"experimental-allocatable-ignore-eviction", false, "eviction thresholds are always subtracted from allocatable"},
	{"experimental-mounter-path", "", "volumes are mounted by system calls"},
	{"global-housekeeping-interval", duration, noCadvisor},
	{"housekeeping-interval", duration, noCadvisor},
	{"image-credential-provider-bin-dir", "", notImplemented},
	{"image-credential-provider-config", "", notImplemented},
	{"lock-file", "", "there is no lock file"},
	{"log-cadvisor-usage", false, noCadvisor},
	{"machine-id-file", "", noCadvisor},
	{"maximum-dead-containers", int32(0), noDeadLimits},
	{"maximum-dead-containers-per-container", int32(0), noDeadLimits},
	{"minimum-container-ttl-duration", duration, noDeadLimits},
	{"runtime-cgroups", "", "the runtime stays in its own cgroup"},
	{"storage-driver-buffer-duration", duration, noCadvisor},
	{"storage-driver-db", "", noCadvisor},
	{"storage-driver-host", "", noCadvisor},
	{"storage-driver-password", "", noCadvisor},
	{"storage-driver-secure", false, noCadvisor},
	{"storage-driver-table", "", noCadvisor},
	{"storage-driver-user", "", noCadvisor},
}
