package config

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

// TinyletConfiguration holds tinylet's own settings. It is a further document in
// the files of --config and --config-dir, in addition to KubeletConfiguration.
type TinyletConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// LogFormat is text or json. The flag --logging-format overrides it. It
	// overrides KubeletConfiguration's logging.format.
	//
	// Default: KubeletConfiguration's logging.format
	LogFormat string `json:"logFormat,omitempty"`
	// SocketPath is the path of the Unix socket of the local API, which the
	// tinylet commands use. Only root can connect.
	//
	// Default: /run/tinylet/tinylet.sock
	SocketPath string `json:"socketPath,omitempty"`
	// ObjectsFolder is a directory of manifests of the objects that static pods
	// refer to by name, without an API server: ConfigMaps, Secrets,
	// PersistentVolumes and PersistentVolumeClaims. A pod waits for missing
	// objects. The directory need not exist. It is read again when it changes.
	//
	// Default: /etc/tinylet/objects
	ObjectsFolder string `json:"objectsFolder,omitempty"`
	// ImagesFolder is a directory of image archives, in the formats of OCI and
	// docker save. Each is imported into the container runtime once, so that pods
	// start without a registry. The directory need not exist.
	//
	// Default: /var/lib/tinylet/images
	ImagesFolder string `json:"imagesFolder,omitempty"`
	// EnrolKubeconfig is the path of a kubeconfig with a credential that stays on
	// the node and may request node certificates. With it a node whose certificate
	// expired while it was offline joins again automatically. Whoever can read the
	// file can impersonate this node.
	//
	// Default: none
	EnrolKubeconfig string `json:"enrolKubeconfig,omitempty"`
	// Journal selects whether the cluster's pods and Secrets are stored on the
	// disk. auto: yes, sealed if a key is set below, else in clear. sealed: only
	// with a key; without a key, or while it cannot be read, pods run but are not
	// stored. off: no, and an existing journal is removed.
	//
	// Default: auto
	Journal string `json:"journal,omitempty"`
	// JournalKeyFile is the path of a file with the journal's key: 32 bytes, raw,
	// in hex or in base64. Only its owner may have permissions on it. On the same
	// disk as the journal it protects nothing: keep it on other storage, or in a
	// tmpfs that is filled at boot.
	//
	// Default: none
	JournalKeyFile string `json:"journalKeyFile,omitempty"`
	// JournalKeyTPMFile is the path of a file with the journal's key, sealed by
	// this board's TPM 2.0 (`tinylet journal-key --tpm` creates it). The journal
	// cannot be read from the disk without the board. It excludes journalKeyFile
	// and journalKeyring.
	//
	// Default: none
	JournalKeyTPMFile string `json:"journalKeyTPMFile,omitempty"`
	// JournalKeyring is the description, such as tinylet:journal, of a key of type
	// "user" in a kernel keyring of root (keyrings(7)). It must hold the journal's
	// key before the agent starts. It excludes journalKeyFile and
	// journalKeyTPMFile.
	//
	// Default: none
	JournalKeyring string `json:"journalKeyring,omitempty"`
	// Metered reduces the traffic of a node whose uplink is paid by volume. The
	// lease is renewed after half of its duration instead of a quarter. Pod
	// statuses of low priority and repeated events are delayed and sent together.
	// A silent API server is pinged more rarely. nodeLeaseDurationSeconds defaults
	// to 50 and nodeStatusReportFrequency to 15m.
	//
	// Default: false
	Metered bool `json:"metered,omitempty"`
	// MemoryQoS protects the memory requests of pods according to
	// memoryReservationPolicy (memory.min, memory.low), and throttles a container
	// before it reaches its memory limit according to memoryThrottlingFactor
	// (memory.high), never below its request. The kubelet does this with the
	// feature gate MemoryQoS.
	//
	// Default: true
	MemoryQoS *bool `json:"memoryQoS,omitempty"`
	// IOWeightByPriority sets io.weight of pods (cgroup v2) by their priority: 50
	// below 0, 100 at 0, 200 above 0, 400 for critical pods. The kernel's I/O
	// scheduler must support it, as bfq does.
	//
	// Default: false
	IOWeightByPriority bool `json:"ioWeightByPriority,omitempty"`
	// OwnCgroup moves the agent and the container runtime, if the init system has
	// left them in the root cgroup, into a cgroup /tinylet whose memory is
	// protected from the pods.
	//
	// Default: true
	OwnCgroup *bool `json:"ownCgroup,omitempty"`
	// MirrorCredentials sends the credentials of a registry also to the mirrors
	// that the runtime has for it (hosts.toml), as the kubelet does. Without it
	// they are sent to the registry's own host only. It is needed if hosts.toml
	// redirects the registry to a server of another name, or has mirrors that
	// require the same credentials.
	//
	// Default: false
	MirrorCredentials bool `json:"mirrorCredentials,omitempty"`
	// StatusPage serves a read-only web page about the node, on the address of
	// /healthz: http://127.0.0.1:10248/ by default. Every client that can connect
	// can read the names of pods and the messages of events. The page is disabled
	// if healthzBindAddress is not a loopback address and there is no
	// statusPageTokenFile.
	//
	// Default: true on a standalone node; on a joined node true only with a
	// statusPageTokenFile
	StatusPage *bool `json:"statusPage,omitempty"`
	// StatusPageTokenFile is the path of a file with a token of at least 16
	// characters, readable by its owner only. The page then requires the token: as
	// a bearer token, or once as ?token= in its URL. The file is read again for
	// each request. The connection is not encrypted.
	//
	// Default: none
	StatusPageTokenFile string `json:"statusPageTokenFile,omitempty"`
	// Network configures the pod network.
	Network Network `json:"network,omitzero"`
}

// HasJournalKey reports whether a key for the journal is configured.
func (tc *TinyletConfiguration) HasJournalKey() bool {
	return tc.JournalKeyFile != "" || tc.JournalKeyTPMFile != "" || tc.JournalKeyring != ""
}

// Defaults of TinyletConfiguration.
const (
	DefaultSocketPath    = "/run/tinylet/tinylet.sock"
	DefaultObjectsFolder = "/etc/tinylet/objects"
	DefaultImagesFolder  = "/var/lib/tinylet/images"
)

// Values of TinyletConfiguration.Journal.
const (
	JournalAuto   = "auto"
	JournalSealed = "sealed"
	JournalOff    = "off"
)

// API versions and kinds of the documents.
const (
	kubeletKind       = kubelet.Kind
	tinyletAPIVersion = "tinylet.dev/v1alpha1"
	tinyletKind       = "TinyletConfiguration"
)

// Log formats.
const (
	LogText = "text"
	LogJSON = "json"
)
