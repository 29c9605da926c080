// Package token issues and verifies the bearer tokens by which a caller on the hub says which agent it means: JWTs that
// name one agent, end, and are signed by a key of the Secret argocd-agent-jwt.
//
// Keys holds one key that signs and any number that only verify, so that a key can be replaced while tokens of the older
// one still work. Source reads them from a file or a folder and follows every change:
//
//	jwt.key    the key that signs; the one file of a folder that must hold a private key for tokens to be issued
//	jwt-*.key  older keys, which verify only
//	*.pub      public keys, which verify only; enough for a program that issues nothing
//
// Each file holds PEM, of PKCS #8 private keys or PKIX public keys. When it holds several, or a file is given in the place
// of a folder, the first private key of jwt.key or of that file signs, and all verify.
//
// The program that verifies a token decides who may use it.
package token
