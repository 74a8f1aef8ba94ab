package source

// podText is a manifest; its verbs are the pod's name and the image's tag.
const podText = `apiVersion: v1
kind: Pod
metadata:
  name: %s
spec:
  containers:
  - name: main
    image: example.com/main:%s
`
