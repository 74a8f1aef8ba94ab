//go:build cluster

package controlplane

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// as is a client with a certificate, or with none.
func (c *Cluster) as(certificates ...tls.Certificate) *http.Client {
	transport := c.client.Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.Certificates = certificates
	transport.DisableKeepAlives = true
	return &http.Client{Transport: transport}
}

// ask sends an object to the API as who has a token or, if that is empty, a
// certificate.
func (c *Cluster) ask(t *testing.T, token, method, path string, object any, certificates []tls.Certificate) (int, []byte) {
	t.Helper()
	body, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, c.Server()+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := c.as(certificates...).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, answer
}

// signed has a new key signed for a node, as the cluster does for a bootstrap
// token.
func signed(t *testing.T, c *Cluster, node string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{Organization: []string{"system:nodes"}, CommonName: "system:node:" + node},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
	const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	if code, answer := c.ask(t, c.Token(t), http.MethodPost, path, request, nil); code != http.StatusCreated {
		t.Fatalf("create certificate signing request: %d %s", code, answer)
	}
	eventually(t, "the certificate is signed", func() string {
		c.Get(t, request, "csr", node)
		if len(request.Status.Certificate) > 0 {
			return ""
		}
		return fmt.Sprintf("%+v", request.Status.Conditions)
	})
	block, _ := pem.Decode(request.Status.Certificate)
	if block == nil {
		t.Fatalf("certificate %q", request.Status.Certificate)
	}
	return tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key}
}

// join does what a node does: it gets a certificate for a token, makes its
// Node, and may not touch another's.
func join(t *testing.T, c *Cluster) {
	code, info := c.ask(t, "", http.MethodGet, "/api/v1/namespaces/kube-public/configmaps/cluster-info", nil, nil)
	if code != http.StatusOK || !strings.Contains(string(info), "jws-kubeconfig-") {
		t.Errorf("cluster-info for all: %d %s", code, info)
	}
	who := []tls.Certificate{signed(t, c, "by-hand")}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}}
	if code, answer := c.ask(t, "", http.MethodPost, "/api/v1/nodes", node, who); code != http.StatusCreated {
		t.Fatalf("create node: %d %s", code, answer)
	}
	eventually(t, "the node has a range of pod addresses", func() string {
		var node corev1.Node
		c.Get(t, &node, "node", "by-hand")
		if strings.HasPrefix(node.Spec.PodCIDR, "10.244.") {
			return ""
		}
		return fmt.Sprintf("%q", node.Spec.PodCIDR)
	})
	c.Apply(t, "apiVersion: v1\nkind: Node\nmetadata: {name: other}\n")
	patch := map[string]any{"metadata": map[string]any{"labels": map[string]string{"mine": "yes"}}}
	if code, answer := c.ask(t, "", http.MethodPatch, "/api/v1/nodes/other", patch, who); code != http.StatusForbidden {
		t.Errorf("a node changes another: %d %s", code, answer)
	}
	c.Must(t, "delete", "nodes", "by-hand", "other")
}
