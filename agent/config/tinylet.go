package config

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TinyletConfiguration is tinylet's own settings: a further document in the
// files that --config and --config-dir name, beside KubeletConfiguration.
type TinyletConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// LogFormat is text or json. The flag --logging-format wins over it; it
	// wins over KubeletConfiguration's logging.format, its default.
	LogFormat string `json:"logFormat,omitempty"`
	// SocketPath is the unix socket on which the agent answers the commands
	// of someone at the board, root only.
	SocketPath string `json:"socketPath,omitempty"`
}

// DefaultSocketPath is SocketPath's default.
const DefaultSocketPath = "/run/tinylet/tinylet.sock"

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
