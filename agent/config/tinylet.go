package config

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TinyletConfiguration is tinylet's own settings: a further document in the
// files that --config and --config-dir name, beside KubeletConfiguration.
type TinyletConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// LogFormat is text or json. The flag --logging-format wins over it; it
	// wins over KubeletConfiguration's logging.format.
	//
	// Default: KubeletConfiguration's logging.format
	LogFormat string `json:"logFormat,omitempty"`
	// SocketPath is the unix socket on which the agent answers the commands
	// of someone at the board, root only.
	//
	// Default: /run/tinylet/tinylet.sock
	SocketPath string `json:"socketPath,omitempty"`
	// ObjectsFolder holds manifests of what the pods of files and URLs refer
	// to by name, as no API server tells them of it: ConfigMaps, Secrets,
	// PersistentVolumes and claims to them. A pod waits for what is missing.
	// The folder may be missing too, and is looked at again when it changes.
	//
	// Default: /etc/tinylet/objects
	ObjectsFolder string `json:"objectsFolder,omitempty"`
	// ImagesFolder holds archives of images, in the formats of OCI and
	// docker save, that are imported into the container runtime once, so that
	// pods start on a board without a registry. The folder may be missing.
	//
	// Default: /var/lib/tinylet/images
	ImagesFolder string `json:"imagesFolder,omitempty"`
	// EnrolKubeconfig is a kubeconfig with a credential that stays on the
	// board and may ask for node certificates: with it, a board whose
	// certificate expired while it was offline joins again by itself. Who
	// reads the file can become this node.
	//
	// Default: none
	EnrolKubeconfig string `json:"enrolKubeconfig,omitempty"`
	// Journal is what is kept on the disk of the cluster's pods and Secrets.
	// auto: everything, sealed if a key is named below, else in clear. sealed:
	// only with a key; without one, or while it cannot be read, pods run and
	// are not kept. off: nothing, and a former journal is removed.
	//
	// Default: auto
	Journal string `json:"journal,omitempty"`
	// JournalKeyFile holds the 32 bytes that seal what is kept on the disk of
	// the cluster's pods and Secrets, raw or in hex or base64. Only its
	// owner may have rights to it. It protects nothing on the disk that has the
	// journal: keep it on other storage, or in a tmpfs that something fills at
	// boot.
	//
	// Default: none
	JournalKeyFile string `json:"journalKeyFile,omitempty"`
	// JournalKeyTPMFile holds such a key as this board's TPM 2.0 has sealed it
	// (`tinylet journal-key --tpm` makes the file): who has the disk without
	// the board cannot read the journal. It excludes journalKeyFile and
	// journalKeyring.
	//
	// Default: none
	JournalKeyTPMFile string `json:"journalKeyTPMFile,omitempty"`
	// JournalKeyring is the description of such a key of type "user" in a
	// kernel keyring of root (keyrings(7)), such as tinylet:journal, which
	// something puts there before the agent starts. It excludes journalKeyFile
	// and journalKeyTPMFile.
	//
	// Default: none
	JournalKeyring string `json:"journalKeyring,omitempty"`
	// Metered is for a board whose every byte costs: its lease is renewed at
	// half of its duration in place of a quarter, what nobody waits for is
	// held back and sent together (statuses of pods, repeated events), and a
	// silent API server is pinged more rarely. nodeLeaseDurationSeconds is 50
	// then and nodeStatusReportFrequency 15m, unless KubeletConfiguration sets
	// them.
	//
	// Default: false
	Metered bool `json:"metered,omitempty"`
	// MemoryQoS protects the memory that pods ask for by
	// memoryReservationPolicy, and holds a container back before it gets to
	// its memory limit by memoryThrottlingFactor, never within its request:
	// what a kubelet does behind the gate of that name.
	//
	// Default: true
	MemoryQoS *bool `json:"memoryQoS,omitempty"`
	// IOWeightByPriority gives pods shares of the disks by their priority
	// (cgroup v2's io.weight): 50 below 0, 100, 200 above 0, 400 for the
	// system's critical pods. The kernel's I/O scheduler has to heed it, as
	// bfq does.
	//
	// Default: false
	IOWeightByPriority bool `json:"ioWeightByPriority,omitempty"`
	// OwnCgroup moves the agent and the container runtime, where their init
	// has left them in the root of the cgroups, into a group /tinylet whose
	// memory is protected from that of the pods.
	//
	// Default: true
	OwnCgroup *bool `json:"ownCgroup,omitempty"`
	// MirrorCredentials gives the credentials of a registry also to the mirrors
	// that the runtime has for it (hosts.toml), as a kubelet does. Without it
	// they are bound to the registry's own host; a hosts.toml that sends its
	// images to a server of another name, or mirrors that want the same
	// credentials, need it.
	//
	// Default: false
	MirrorCredentials bool `json:"mirrorCredentials,omitempty"`
	// StatusPage shows the node to a browser, where /healthz is: at
	// http://127.0.0.1:10248/ by default. It only shows; whoever can connect
	// sees the names of pods and the texts of events. It is closed where
	// healthzBindAddress is not of the loopback and there is no
	// statusPageTokenFile.
	//
	// Default: true on a standalone node; on a node of a cluster true only with
	// a statusPageTokenFile
	StatusPage *bool `json:"statusPage,omitempty"`
	// StatusPageTokenFile holds a token of at least 16 characters, in a file
	// that only its owner may read, that the page wants then: as a bearer
	// token, or once as ?token= behind its address. The file is read anew for
	// each request. The way to the page is not encrypted.
	//
	// Default: none
	StatusPageTokenFile string `json:"statusPageTokenFile,omitempty"`
	// Network is how pods get their network.
	Network Network `json:"network,omitzero"`
}

// JournalKey reports whether a setting names a key for the journal.
func (tc *TinyletConfiguration) JournalKey() bool {
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

// Identity of the documents.
const (
	kubeletAPIVersion = "kubelet.config.k8s.io/v1beta1"
	kubeletKind       = "KubeletConfiguration"
	tinyletAPIVersion = "tinylet.dev/v1alpha1"
	tinyletKind       = "TinyletConfiguration"
)

// Log formats.
const (
	LogText = "text"
	LogJSON = "json"
)
