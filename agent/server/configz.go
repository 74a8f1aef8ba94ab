package server

import (
	"encoding/json"
	"net/http"

	kubelet "k8s.io/kubelet/config/v1beta1"
)

// masked replaces values that may be secret, as in the kubelet's logs.
const masked = "<masked>"

// configz serves /configz: the effective configuration (component-base/configz). The
// headers of staticPodURL are masked, because they may contain a token.
func (s *Server) configz(w http.ResponseWriter, _ *http.Request) {
	kc := *s.config.Kubelet
	kc.Kind, kc.APIVersion = "KubeletConfiguration", kubelet.SchemeGroupVersion.String()
	if kc.StaticPodURLHeader != nil {
		headers := make(map[string][]string, len(kc.StaticPodURLHeader))
		for name := range kc.StaticPodURLHeader {
			headers[name] = []string{masked}
		}
		kc.StaticPodURLHeader = headers
	}
	data, err := json.Marshal(map[string]any{"kubeletconfig": &kc})
	if err != nil {
		http.Error(w, "encode configuration: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(data) // fails only if the client has disconnected
}
